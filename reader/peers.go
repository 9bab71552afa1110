package reader

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kudos/httpserver/problem"
	"kudos/httpserver/tlsfiles"
	"kudos/reader/query"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
)

// peers asks the readers that keep a partition, one after another until one answers.
type peers struct {
	own     string // this reader's address
	client  *http.Client
	holders func(partition int32) (addresses []string, generation int32)
	maxWait time.Duration

	mu     sync.Mutex
	failed map[string]time.Time // when an address last did not answer
}

const (
	peerPath      = "/peer/v1/partitions/{partition}/reactions"
	peerTimeout   = time.Second     // of an answer, in addition to what the peer may wait
	peerAvoid     = 2 * time.Second // how long a peer that did not answer is asked last
	maxPeerAnswer = 4 << 20         // bytes
)

func newPeers(o Options, holders func(partition int32) ([]string, int32)) *peers {
	files := tlsfiles.Files{Setting: "reader.peer_tls", CA: o.PeerTLSCA}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	dialer := &net.Dialer{Timeout: peerTimeout}
	return &peers{own: o.AdvertisedURL, holders: holders, maxWait: o.MaxWait, failed: map[string]time.Time{},
		client: &http.Client{Transport: &http.Transport{
			Protocols: protocols, DialContext: dialer.DialContext,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				host, _, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, err
				}
				config, err := files.Config(host)
				if err != nil {
					return nil, err
				}
				config.NextProtos = []string{"h2"}
				return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, addr)
			},
			// A connection to a host that has vanished must not take every question's timeout.
			HTTP2: &http.HTTP2Config{SendPingTimeout: peerTimeout, PingTimeout: peerTimeout},
		}}}
}

// ask returns the first answer of a reader that keeps the partition. A reader that trusts this one counts the question
// for the client.
func (p *peers) ask(ctx context.Context, client string, partition int32, of *question) (*partAnswer, error) {
	body, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("encoding a question: %w", err)
	}
	timeout := peerTimeout
	if of.Covered > 0 {
		timeout += p.maxWait
	}
	var errs []error
	for _, address := range p.order(partition) {
		url := address + strings.Replace(peerPath, "{partition}", strconv.Itoa(int(partition)), 1)
		answer, err := p.askOne(ctx, url, client, body, timeout)
		no, isRefusal := errors.AsType[*refusal](err)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil, isRefusal && !anotherMayAnswer(no):
			return nil, err
		}
		if !isRefusal {
			p.mu.Lock()
			p.failed[address] = time.Now()
			p.mu.Unlock()
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	_, generation := p.holders(partition)
	return nil, unavailable(problem.New(http.StatusServiceUnavailable, "not-ready", "Reader not ready",
		"no reader answers for the reactions of partition %d (generation %d): %v", partition, generation,
		cmp.Or(errors.Join(errs...), errors.New("none keeps them yet"))))
}

// anotherMayAnswer reports whether another replica of the partition may answer what one has refused.
func anotherMayAnswer(no *refusal) bool {
	return no.Status == http.StatusMisdirectedRequest || no.Status == http.StatusTooManyRequests ||
		no.Status >= 500 && !strings.HasSuffix(no.Type, ":not-covered")
}

// order returns the other readers that keep a partition, those that have failed lately last.
func (p *peers) order(partition int32) []string {
	holders, _ := p.holders(partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	var good, bad []string
	for _, address := range holders {
		switch {
		case address == p.own:
		case time.Since(p.failed[address]) < peerAvoid:
			bad = append(bad, address)
		default:
			good = append(good, address)
		}
	}
	return slices.Concat(good, bad)
}

func (p *peers) askOne(ctx context.Context, url, client string, body []byte, timeout time.Duration,
) (*partAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = jsonType
	req.Header.Set("X-Forwarded-For", client)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	limited := io.LimitReader(resp.Body, maxPeerAnswer)
	if resp.StatusCode != http.StatusOK {
		no := &refusal{Problem: &problem.Problem{}, again: resp.Header.Get("Retry-After") != ""}
		if err := json.NewDecoder(limited).Decode(no); err != nil || no.Status != resp.StatusCode {
			return nil, fmt.Errorf("the response is %s", resp.Status)
		}
		return nil, no
	}
	answer := &partAnswer{}
	return answer, json.NewDecoder(limited).Decode(answer)
}

func (p *peers) close() { p.client.CloseIdleConnections() }

func (a *api) answerPeer(q *request) (reply, error) {
	partition, notANumber := strconv.ParseUint(q.Request.PathValue("partition"), 10, 31)
	if notANumber != nil {
		q.Add(problem.NotANumber("partition", q.Request.PathValue("partition")))
	}
	raw, err := a.readJSON(q)
	if err != nil {
		return reply{}, err
	}
	var of question
	if err := json.Unmarshal(raw, &of); err != nil {
		q.Refuse("body", string(schema.Undecodable), "is not a reader's question: %v", err)
	}
	if len(of.Posts) == 0 || len(of.Posts) > wire.MaxPosts || of.Limit < 0 || of.Limit > maxPageSize {
		q.Refuse(query.PostIDs, query.OutOfRange, "has %d posts, and limit is %d", len(of.Posts), of.Limit)
	}
	if err := cmp.Or(q.refusal(), a.withoutReactions()); err != nil {
		return reply{}, err
	}
	answer, err := a.answer(q, int32(partition), &of)
	if stream.IsNotKept(err) {
		_, generation := a.reactions.Holders(int32(partition))
		return reply{}, refuse(problem.New(http.StatusMisdirectedRequest, notMine,
			"This reader does not keep the partition",
			"by generation %d of group %s, other readers keep partition %d", generation, schema.GroupReactions,
			partition))
	}
	if err != nil {
		return reply{}, err
	}
	return encode(q, private, answer)
}

const notMine = "not-mine" // the slug of the answer of a reader that does not keep a partition
