package problem

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, InvalidRequest(FieldError{"post_id", "zero_id", "is 0"}, FieldError{"user_id", "zero_id", "is 0"}))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.JSONEq(t, `{"type":"urn:kudos:problem:invalid-request","title":"The request is not valid","status":400,
		"detail":"post_id: is 0","errors":[{"field":"post_id","reason":"zero_id","detail":"is 0"},
		{"field":"user_id","reason":"zero_id","detail":"is 0"}]}`, w.Body.String())

	w = httptest.NewRecorder()
	Answer(w, http.StatusAccepted, map[string]int{"n": 1})
	require.Equal(t, http.StatusAccepted, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.JSONEq(t, `{"n":1}`, w.Body.String())
}

func TestByMethod(t *testing.T) {
	methods := map[string]http.HandlerFunc{
		http.MethodGet:  func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Served", r.Method) },
		http.MethodPost: func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Served", r.Method) },
	}
	ask := func(h http.HandlerFunc, method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(method, "/here", nil))
		return w
	}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		require.Equal(t, method, ask(ByMethod(methods), method).Header().Get("Served"))
	}
	require.Len(t, methods, 2, "ByMethod must not change its argument")
	w := ask(ByMethod(methods), "PUT")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
	require.Contains(t, w.Body.String(), "PUT is not allowed; allowed: GET, HEAD, POST")
	w = ask(ByMethod(nil), "GET")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), `no route has the path \"/here\"`)
}

func TestParseID(t *testing.T) {
	id, wrong := ParseID("post_id", "18446744073709551615")
	require.Nil(t, wrong)
	require.EqualValues(t, uint64(1<<64-1), id)
	for _, bad := range []string{
		"", "x", "-1", "+1", "1.5", " 1", "1e3", "18446744073709551616", "000000000000000000007", "0x7", "1_000",
	} {
		_, wrong := ParseID("post_id", bad)
		require.NotNil(t, wrong, bad)
		require.Equal(t, string(schema.Undecodable), wrong.Reason, bad)
		require.Equal(t, "post_id", wrong.Field)
	}
	_, wrong = ParseID("post_id", "0")
	require.Equal(t, &FieldError{"post_id", "zero_id", "is 0"}, wrong)
}

func TestFieldErrorOf(t *testing.T) {
	require.Equal(t, FieldError{"line", "undecodable", "oh"}, FieldErrorOf(errors.New("oh"), "line"))
	poison := &schema.PoisonError{Reason: schema.OverSize, Detail: "oh"}
	require.Equal(t, FieldError{"line", "over_size", "oh"}, FieldErrorOf(poison, "line"))
	poison = &schema.PoisonError{Reason: schema.KeyMismatch, Field: "key", Detail: "oh"}
	require.Equal(t, FieldError{"key", "key_mismatch", "oh"}, FieldErrorOf(poison, "line"))
}

func TestRequireMediaType(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	require.Equal(t, `Content-Type is ""; send a/b or c/d`, RequireMediaType(r, "a/b", "c/d").Detail)
	r.Header.Set("Content-Type", "C/D; charset=utf-8")
	require.Nil(t, RequireMediaType(r, "a/b", "c/d"))
	r.Header.Set("Content-Encoding", "gzip")
	require.Equal(t, http.StatusUnsupportedMediaType, RequireMediaType(r, "a/b", "c/d").Status)
	r.Header.Set("Content-Encoding", "Identity")
	require.Nil(t, RequireMediaType(r, "a/b", "c/d"))
}

func TestUnreadBody(t *testing.T) {
	require.Equal(t, "the body has more than 9 bytes", UnreadBody(&http.MaxBytesError{Limit: 9}, 9).Detail)
	require.Equal(t, http.StatusRequestTimeout, UnreadBody(os.ErrDeadlineExceeded, 9).Status)
	require.Equal(t, "body: ended early", UnreadBody(errors.New("oh"), 9).Detail)
}

func TestParseFields(t *testing.T) {
	fields, wrong := ParseFields([]byte(`{"a":1,"b":[2]}`), "body", "a", "b", "c")
	require.Nil(t, wrong)
	require.Equal(t, "[2]", string(fields["b"]))
	for raw, want := range map[string]string{
		``: "is empty", `null`: "is not a JSON object", `[]`: "is not a JSON object",
		`{`: "is not JSON: unexpected end of JSON input",
	} {
		_, wrong := ParseFields([]byte(raw), "body", "a")
		require.Equal(t, "body", wrong.Field)
		require.Equal(t, want, wrong.Detail)
	}
	_, wrong = ParseFields([]byte(`{"z":1,"y":1,"a":1}`), "body", "a")
	require.Equal(t, &FieldError{"y", UnknownField, "is unknown; allowed: a"}, wrong)
	for _, raw := range []string{
		`{"a":1,"a":1}`, `{"a":[{"a":1}],"\u0061":2}`, `{"user_id":7,"userId":7}`, `{"user_id":7,"userId":null}`,
	} {
		_, wrong = ParseFields([]byte(raw), "body", "a", "user_id", "userId")
		require.Equal(t, Repeated, wrong.Reason, raw)
		require.Equal(t, "is given more than once", wrong.Detail)
	}
	_, wrong = ParseFields([]byte(`{"a":{"b":1,"b":2},"user_id":[["userId"]]}`), "body", "a", "user_id", "userId")
	require.Nil(t, wrong)
	require.Equal(t, "is unknown; none is allowed", Unknown("z").Detail)
	require.Len(t, Unknown(strings.Repeat("z", 100)).Field, 40)
}
