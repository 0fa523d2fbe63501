// Package main measures what proa's design promises and prints it as a table: what, what an upstream control plane needed
// on a machine with two cores, the budget, and what this machine needs. Every group of rows starts and stops a server of its
// own, on a free port and an empty data directory. Run it with:
//
//	go run ./test/bench [-only REGEXP] [-binary bin/proa] [-idle 60s]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// row is one line of the table.
type row struct{ what, upstream, budget string }

// group is rows that one run measures; readings are in the order of the rows.
type group struct {
	rows []row
	run  func(ctx context.Context, b *bench) ([]reading, error)
}

// reading is what a row measured and whether it is within the budget.
type reading struct {
	text string
	ok   bool
}

// skip is the error of a group that cannot run here.
type skip string

func (s skip) Error() string { return string(s) }

// bench is what groups share.
type bench struct {
	binary string
	dir    string // for data directories; fsync there is what durable means
	idle   time.Duration
	env    []string // of servers
}

// groups is the whole table, in its order.
func groups() []group {
	return slices.Concat(startGroups(), writeGroups(), readGroups(), scheduleGroups())
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b := &bench{}
	only := flag.String("only", "", "measure only rows that match this regular expression")
	flag.StringVar(&b.binary, "binary", "bin/proa", "the program to measure")
	flag.StringVar(&b.dir, "dir", os.TempDir(), "where data directories are made")
	flag.DurationVar(&b.idle, "idle", time.Minute, "how long an idle server is watched")
	list := flag.Bool("list", false, "print the rows and measure nothing")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if _, err := os.Stat(b.binary); err != nil && !*list {
		return fmt.Errorf("%w; build it with: make build", err)
	}
	printRow(row{"what", "upstream", "budget"}, "measured", "")
	failed := false
	for _, g := range groups() {
		if !slices.ContainsFunc(g.rows, func(r row) bool { return match.MatchString(r.what) }) {
			continue
		}
		if *list {
			for _, r := range g.rows {
				printRow(r, "", "")
			}
			continue
		}
		readings, err := g.run(ctx, b)
		for i, r := range g.rows {
			switch reason, skipped := errors.AsType[skip](err); {
			case skipped:
				printRow(r, "skipped: "+string(reason), "")
			case i < len(readings):
				printRow(r, readings[i].text, map[bool]string{true: "ok", false: "miss"}[readings[i].ok])
			default:
				failed = true
				printRow(r, "failed: "+cmp.Or(err, errors.New("not measured")).Error(), "")
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed {
		return errors.New("some rows could not be measured")
	}
	return nil
}

func printRow(r row, measured, verdict string) {
	if verdict != "" {
		measured = fmt.Sprintf("%-52s | %s", measured, verdict)
	}
	fmt.Printf("%-46s | %-34s | %-24s | %s\n", r.what, r.upstream, r.budget, strings.TrimSpace(measured))
}

// seconds prints a duration with three digits or so.
func seconds(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+500_000)/1_000_000) }
