// Package live shows counts and rankings as they change: GET /v1/stream, as Server-Sent Events or over a WebSocket.
//
// The callbacks of the local copies (package view) bring changes; each open stream gets the current values and then
// each newer one.
//
//	view.Likes ────┐ Watch: a newer value is kept       each Interval: encoded once,
//	               ├─► if a stream shows its subject ──► then the subject's streams are ──► stream (a goroutine
//	view.Rankings ─┘ (subject.go)                       woken (Hub.Run)                    each) ─► SSE, WebSocket
//
// Nothing is queued for a stream. Woken, it writes of each of its subjects the newest value, if that is newer than what
// it wrote last. So a slow client skips to the newest, holds nobody up and costs no memory; and where nothing changes,
// nothing runs but heartbeats.
//
// A stream first registers with its subjects, and reads the copy after that. A change that the reading has missed was
// made visible later, so that its callback, which comes later still, finds the stream; one that both bring is known by
// its position.
package live
