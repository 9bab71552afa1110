// Package live streams counts and rankings as they change: GET /v1/stream, as Server-Sent Events or over a WebSocket.
//
// The views (package view) report changes by callback. Each open stream gets the current values, then each newer one.
//
//	view.Likes ────┐ Watch: a newer value is kept       each Interval: encoded once,
//	               ├─► if a stream shows its subject ──► then the subject's streams are ──► stream (a goroutine
//	view.Rankings ─┘ (subject.go)                       woken (Hub.Run)                    each) ─► SSE, WebSocket
//
// Nothing is queued for a stream. When woken, it writes the newest value of each subject, if that is newer than what it
// wrote last. So a slow client skips to the newest value, delays nobody and costs no memory. While nothing changes,
// only heartbeats are sent.
//
// A stream registers with its subjects before it reads the view. A change that this read misses becomes visible later.
// Its callback comes later still, and finds the stream registered. If both deliver a change, its position shows it.
package live
