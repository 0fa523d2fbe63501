package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// DamageError says that the store's files cannot be what was written, and what to do about it.
type DamageError struct {
	// File that is damaged; the database's directory when that is all that is known.
	File    string
	DataDir string
	Err     error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("store is damaged: %s: %v; run \"proa store repair --data-dir %s\" to salvage what can be read",
		e.File, e.Err, e.DataDir)
}

func (e *DamageError) Unwrap() error { return e.Err }

// damage makes the error for a damaged file, which is looked for when its name is empty.
func (b *Backend) damage(file string, err error) *DamageError {
	if d, ok := errors.AsType[*DamageError](err); ok {
		return d
	}
	db := b.o.FS.PathJoin(b.dir, dbDir)
	if file == "" {
		file = db
		if damaged, findErr := findDamage(b.o.FS, db); findErr == nil && damaged != nil {
			file = damaged.file
		}
	}
	return &DamageError{File: file, DataDir: b.o.DataDir, Err: err}
}

// readError tells damage from other errors.
func (b *Backend) readError(err error) error {
	if cause := b.breakage.Load(); cause != nil && err != nil {
		if d, ok := errors.AsType[*DamageError](*cause); ok {
			return d
		}
	}
	if pebble.IsCorruptionError(err) || errors.Is(err, errRecord) {
		return b.damage("", err)
	}
	return err
}

// fail makes every further call fail with err.
func (b *Backend) fail(err error) {
	b.breaking.Do(func() {
		b.breakage.Store(&err)
		close(b.broken)
	})
}

// backgroundError hears of flushes and compactions that went wrong. The database tries them again; only a full disk
// gets better by itself.
func (b *Backend) backgroundError(err error) {
	if b.closing.Load() || errors.Is(err, pebble.ErrCancelledCompaction) || errors.Is(err, context.Canceled) {
		return
	}
	b.o.Log.Error("store upkeep", "error", err)
	if !errors.Is(err, syscall.ENOSPC) {
		b.fail(fmt.Errorf("store upkeep: %w", err))
	}
}

// guard runs f in a goroutine of its own. The database calls Fatalf where it cannot go on and must not return from it;
// that ends the goroutine instead of the process, and the call returns the reason. It also returns when the database
// breaks elsewhere and f hangs because of that.
func (b *Backend) guard(f func() error) error {
	if cause := b.breakage.Load(); cause != nil {
		return *cause
	}
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-b.broken:
		select {
		case err := <-result:
			if err != nil {
				return err
			}
		default:
		}
		return *b.breakage.Load()
	}
}

// logger passes on what the database has to say.
type logger struct{ b *Backend }

func (l logger) Infof(format string, args ...any) {
	if log := l.b.o.Log; log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("store database", "detail", fmt.Sprintf(format, args...))
	}
}

func (l logger) Errorf(format string, args ...any) {
	l.b.o.Log.Error("store database", "detail", fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	// The wrapped error is among the arguments, printed with %v or %s.
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err = fmt.Errorf("store database: %w", cause)
		}
	}
	l.b.o.Log.Error("store database cannot go on", "error", err)
	l.b.fail(err)
	runtime.Goexit()
}
