// Command testee is run by `kudos conform`; clients/conformance/README.md describes the protocol.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"kudos/clients/go"
)

type request struct {
	ID          json.RawMessage `json:"id"`
	Op          string          `json:"op"`
	BaseURL     string          `json:"base_url"`
	PostID      uint64          `json:"post_id,string"`
	UserID      uint64          `json:"user_id,string"`
	Action      kudos.Action    `json:"action"`
	TimeMs      int64           `json:"time_ms,string"`
	Region      string          `json:"region"`
	Partitions  int32           `json:"partitions"`
	UserBuckets []string        `json:"user_buckets"`
	Partition   int32           `json:"partition"`
	Databases   int32           `json:"databases"`
	Events      int             `json:"events"`
	MinOffset   *struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset,string"`
	} `json:"min_offset"`
}

type answer map[string]any

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		a, err := do(ctx, &q)
		cancel()
		if p, ok := errors.AsType[*kudos.Problem](err); ok {
			a = answer{"problem": strings.TrimPrefix(p.Type, "urn:kudos:problem:")}
		} else if err != nil {
			a = answer{"error": err.Error()}
		}
		a["id"] = q.ID
		if err := out.Encode(a); err != nil {
			log.Fatal(err)
		}
	}
}

func do(ctx context.Context, q *request) (answer, error) {
	client := &kudos.Client{ProducerURL: q.BaseURL, ReaderURL: q.BaseURL}
	event := kudos.Event{PostID: q.PostID, UserID: q.UserID, Action: q.Action, Region: q.Region}
	if q.TimeMs != 0 {
		event.Time = time.UnixMilli(q.TimeMs)
	}
	switch q.Op {
	case "event":
		key, value, err := kudos.Record(event, kudos.Layout{})
		return answer{"key": key, "value": hex.EncodeToString(value)}, err
	case "partition":
		layout := kudos.Layout{Partitions: q.Partitions, UserBuckets: map[uint64]int32{}}
		for _, s := range q.UserBuckets {
			var post uint64
			var buckets int32
			if _, err := fmt.Sscanf(s, "%d:%d", &post, &buckets); err != nil {
				return nil, err
			}
			layout.UserBuckets[post] = buckets
		}
		return answer{"key": kudos.Key(q.PostID, q.UserID, layout),
			"partition": kudos.Partition(q.PostID, q.UserID, layout)}, nil
	case "database":
		return answer{"database": kudos.DatabaseOf(q.Partition, q.Databases)}, nil
	case "react":
		at, err := client.React(ctx, event)
		return answer{"partition": at.Partition, "offset": strconv.FormatInt(at.Offset, 10)}, err
	case "count":
		var after []kudos.Position
		if q.MinOffset != nil {
			after = append(after, kudos.Position(*q.MinOffset))
		}
		counts, err := client.Count(ctx, q.PostID, after...)
		return answer{"likes": fmt.Sprint(counts.Likes), "dislikes": fmt.Sprint(counts.Dislikes)}, err
	case "stream":
		var likes []string
		for counts, err := range client.Stream(ctx, q.PostID) {
			if err != nil {
				return nil, err
			}
			if likes = append(likes, strconv.FormatInt(counts.Likes, 10)); len(likes) == q.Events {
				break
			}
		}
		return answer{"likes": likes}, nil
	}
	return answer{"unsupported": true}, nil
}
