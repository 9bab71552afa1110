package live

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxEventID bounds what is taken for an event id, in bytes. One of MaxPosts
// partitions with the largest numbers stays below.
const maxEventID = 4096

var (
	epochForm    = regexp.MustCompile(`^[0-9a-f]{8}$`)
	positionForm = regexp.MustCompile(`^(\d{1,10}):(\d{1,19})$`)
)

// eventID is an id as a client sends it back: what it has seen before its connection was
// lost. <epoch>.<partition>:<offset>[,<partition>:<offset>…], offsets in likes (those of
// rankings in trending). Positions of one epoch mean nothing in another.
type eventID struct {
	epoch   string
	offsets map[int32]int64
}

func parseEventID(s string) (*eventID, error) {
	if len(s) > maxEventID {
		return nil, fmt.Errorf("is longer than %d bytes", maxEventID)
	}
	epoch, positions, _ := strings.Cut(s, ".")
	if !epochForm.MatchString(epoch) {
		return nil, errors.New("does not begin with 8 hex digits and a dot")
	}
	id := &eventID{epoch: epoch, offsets: map[int32]int64{}}
	for position := range strings.SplitSeq(positions, ",") {
		parts := positionForm.FindStringSubmatch(position)
		if parts == nil {
			return nil, fmt.Errorf("has %.40q where partition:offset is expected", position)
		}
		partition, err := strconv.ParseInt(parts[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("has %q, which is no partition", parts[1])
		}
		offset, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("has %q, which is no offset", parts[2])
		}
		if _, twice := id.offsets[int32(partition)]; twice {
			return nil, fmt.Errorf("has partition %d twice", partition)
		}
		id.offsets[int32(partition)] = offset
	}
	return id, nil
}

// appendEventID writes the id that covers what a stream has shown.
func appendEventID(b []byte, epoch string, groups []*group) []byte {
	b = append(b, epoch...)
	separator := byte('.')
	for _, g := range groups {
		if g.covered < 0 {
			continue
		}
		b = append(b, separator)
		b = strconv.AppendInt(b, int64(g.partition), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, g.covered, 10)
		separator = ','
	}
	return b
}
