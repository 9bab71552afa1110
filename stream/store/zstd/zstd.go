// Package zstd replaces github.com/DataDog/zstd, which Pebble imports in builds with cgo: 40 C files, one eighth of the
// CPU time of a first build. Builds without cgo, such as the image, use klauspost/compress there; with this package all
// builds do. It implements only what Pebble calls. kudos's own stores are compressed with Snappy.
package zstd

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Ctx compresses and decompresses. It has no state: the encoders and the decoder are shared.
type Ctx struct{}

// NewCtx returns a Ctx.
func NewCtx() Ctx { return Ctx{} }

// encoder returns the encoder of a zstd level, 1 to 22. Creating one for each block is too expensive.
func encoder(level int) (*zstd.Encoder, error) {
	speed := zstd.EncoderLevelFromZstd(level)
	if e, ok := encoders.Load(speed); ok {
		return e.(*zstd.Encoder), nil
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(speed))
	if err != nil {
		return nil, err
	}
	shared, _ := encoders.LoadOrStore(speed, e)
	return shared.(*zstd.Encoder), nil
}

var encoders sync.Map // zstd.EncoderLevel → *zstd.Encoder

// decoder fails rather than write outside the caller's memory.
var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

// CompressBound is the largest compressed size: 3 bytes more for each block of 128 KiB, and the header and checksum.
func CompressBound(size int) int { return size + size>>8 + 64 }

// CompressLevel compresses src into the memory of dst, which must have CompressBound(len(src)) bytes.
func (Ctx) CompressLevel(dst, src []byte, level int) ([]byte, error) {
	e, err := encoder(level)
	if err != nil {
		return nil, err
	}
	// The encoder may reallocate dst for an attempt that turns out larger than src.
	out := e.EncodeAll(src, dst[:0])
	if len(out) > len(dst) {
		return nil, io.ErrShortBuffer
	}
	return dst[:copy(dst, out)], nil
}

// DecompressInto decompresses src into dst and returns the number of bytes.
func (Ctx) DecompressInto(dst, src []byte) (int, error) {
	d, err := decoder()
	if err != nil {
		return 0, err
	}
	out, err := d.DecodeAll(src, dst[:0:len(dst)])
	return len(out), err
}
