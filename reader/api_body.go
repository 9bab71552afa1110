package reader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/wire"
	"kudos/schema"
)

// maxBody is enough for MaxPosts ids and as many places, with white space.
const maxBody = 256 << 10

// maxBodies bounds the memory of bodies that are arriving (64 MiB): what that many whole ones take.
const maxBodies = 256

// parseManyLikes reads the body of a POST: ids are appended to posts, and covered is the
// least "as of" that covers the events asked for.
func parseManyLikes(raw []byte, posts []uint64) (_ []uint64, covered []wire.Position, err error) {
	fields, wrong := problem.ParseFields(raw, "body", query.PostIDs, minOffset)
	if wrong != nil {
		return posts, nil, invalid(*wrong)
	}
	if posts, wrong = parseIDs(fields[query.PostIDs], posts); wrong != nil {
		return posts, nil, invalid(*wrong)
	}
	if covered, wrong = parsePlaces(fields[minOffset]); wrong != nil {
		return posts, nil, invalid(*wrong)
	}
	return posts, covered, nil
}

// parseIDs reads a JSON array of ids, each a number or a string; raw is valid JSON.
func parseIDs(raw json.RawMessage, ids []uint64) ([]uint64, *problem.FieldError) {
	list, isArray := bytes.CutPrefix(raw, []byte("["))
	if !isArray {
		return ids, &problem.FieldError{Field: query.PostIDs, Reason: string(schema.Undecodable), Detail: "must be an array of the posts' ids"}
	}
	text := strings.TrimSpace(string(list[:len(list)-1]))
	if text == "" {
		return ids, &problem.FieldError{Field: query.PostIDs, Reason: problem.Empty, Detail: "names no post"}
	}
	// A string with a comma in it is no id either, whole or in parts.
	if n := strings.Count(text, ",") + 1; n > wire.MaxPosts {
		return ids, &problem.FieldError{Field: query.PostIDs, Reason: query.TooMany, Detail: fmt.Sprintf("has %d posts; %d at most", n, wire.MaxPosts)}
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if n := len(item); n >= 2 && item[0] == '"' && item[n-1] == '"' {
			item = item[1 : n-1]
		}
		id, wrong := problem.ParseID(query.PostIDs, item)
		if wrong != nil {
			return ids, wrong
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// parsePlaces reads a JSON array of positions of events; nil is none.
func parsePlaces(raw json.RawMessage) ([]wire.Position, *problem.FieldError) {
	wrong := func(reason, format string, args ...any) *problem.FieldError {
		return &problem.FieldError{Field: minOffset, Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	if raw == nil {
		return nil, nil
	}
	var places []struct {
		Partition *int32 `json:"partition"`
		Offset    *int64 `json:"offset"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&places); err != nil || places == nil {
		return nil, wrong(string(schema.Undecodable), "must be an array of places, each as {\"partition\":3,\"offset\":1018}")
	}
	if len(places) > wire.MaxPosts {
		return nil, wrong(query.TooMany, "has %d places; %d at most", len(places), wire.MaxPosts)
	}
	covered := make([]wire.Position, len(places))
	for i, p := range places {
		if p.Partition == nil || p.Offset == nil || *p.Partition < 0 || *p.Offset < 0 || *p.Offset > maxOffset {
			return nil, wrong(string(schema.Undecodable), "number %d of the list is no place: partition and offset must be there, from 0 on", i+1)
		}
		covered[i] = wire.Position{Partition: *p.Partition, Offset: *p.Offset + 1}
	}
	return covered, nil
}
