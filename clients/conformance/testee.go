package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

const (
	maxAnswerBytes = 1 << 20
	exitPatience   = 5 * time.Second // how long a testee may take to exit when its input ends
)

// testee is the running program around a client.
type testee struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	lines *bufio.Scanner // of out
	last  int64          // the id of the last request
}

func start(command []string, stderr io.Writer) (*testee, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second // a child of the testee may keep its standard error open
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return nil, fmt.Errorf("starting the testee: %w", err)
	}
	t := &testee{cmd: cmd, in: in, out: out, lines: bufio.NewScanner(out)}
	t.lines.Buffer(nil, maxAnswerBytes)
	return t, nil
}

// kill also ends a read of the testee's output, which a child of the testee may keep open.
func (t *testee) kill() {
	_ = t.cmd.Process.Kill() // it may have ended
	_ = t.out.Close()
}

// ask sends a request and returns the answer. After an error the testee has ended.
func (t *testee) ask(ctx context.Context, q map[string]any) (map[string]any, error) {
	t.last++
	q["id"] = t.last
	_, _ = io.WriteString(t.in, text(q)+"\n") // fails if the testee has ended; Scan tells
	stop := context.AfterFunc(ctx, t.kill)
	defer stop()
	if !t.lines.Scan() {
		err := t.lines.Err()
		if err != nil {
			t.kill()
		}
		ended := t.end()
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case err == nil && ended == nil:
			err = errors.New("exit status 0")
		case err == nil:
			err = ended
		}
		return nil, fmt.Errorf("the testee did not answer: %w", err)
	}
	var answer map[string]any
	err := json.Unmarshal(t.lines.Bytes(), &answer)
	if err == nil && answer["id"] != float64(t.last) {
		err = fmt.Errorf("its id is %v, that of the request %d", answer["id"], t.last)
	}
	if err != nil {
		defer t.end()
		return nil, fmt.Errorf("answer %.200q: %w", t.lines.Bytes(), err)
	}
	delete(answer, "id")
	return answer, nil
}

// end ends the testee's input and waits until it has exited. It returns an error unless that was with 0.
func (t *testee) end() error {
	_ = t.in.Close()
	timer := time.AfterFunc(exitPatience, t.kill)
	for t.lines.Scan() { // what no request asked for
	}
	err := t.cmd.Wait()
	if !timer.Stop() {
		return fmt.Errorf("the testee still ran %s after the end of its input", exitPatience)
	}
	return err
}
