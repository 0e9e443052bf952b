package dev

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// console prints what happens: steps that may be slow, with their progress, and text. On a terminal a running step
// is one line that is rewritten; elsewhere each report is a line of its own.
type console struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	live     bool // a rewritten line is on the screen
}

func newConsole(out io.Writer) *console {
	f, ok := out.(*os.File)
	return &console{out: out, terminal: ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"}
}

// Write prints text as it is, below whatever step is shown.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	return c.out.Write(p)
}

func (c *console) clear() {
	if c.live {
		fmt.Fprint(c.out, "\r\x1b[K")
		c.live = false
	}
}

// style wraps text in an escape sequence on a terminal.
func (c *console) style(code, text string) string {
	if !c.terminal || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (c *console) bold(text string) string  { return c.style("1", text) }
func (c *console) faint(text string) string { return c.style("2", text) }

// step runs fn under a name and prints how it ended and how long it took. fn reports progress through its argument, and returns
// what is worth saying at the end.
func (c *console) step(name string, fn func(progress func(string)) (string, error)) error {
	started := time.Now()
	progress := func(text string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		line := fmt.Sprintf("  … %s: %s", name, text)
		if c.terminal {
			c.clear()
			fmt.Fprint(c.out, line)
			c.live = true
			return
		}
		fmt.Fprintln(c.out, line)
	}
	said, err := fn(progress)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	if err != nil {
		fmt.Fprintf(c.out, "  %s %s\n", c.style("31", "✗"), name)
		return fmt.Errorf("%s: %w", strings.ToLower(name[:1])+name[1:], err)
	}
	fmt.Fprintf(c.out, "  %s %-24s %s %s\n", c.style("32", "✓"), name, c.faint(fmt.Sprintf("%5.1fs", time.Since(started).Seconds())), said)
	return nil
}
