package stack

import "testing"

// deep calls itself with frames of about 100 bytes, as the levels of an object have.
//
//go:noinline
func deep(levels int) int {
	if levels == 0 {
		return 0
	}
	var frame [8]int
	frame[levels%8] = deep(levels - 1)
	return frame[levels%8] + 1
}

// BenchmarkDeepGoroutine calls deep in new goroutines.
func BenchmarkDeepGoroutine(b *testing.B) {
	for name, grow := range map[string]func(){"grown": Grow, "as it is": func() {}} {
		b.Run(name, func(b *testing.B) {
			done := make(chan int)
			for b.Loop() {
				go func() { grow(); done <- deep(150) }()
				<-done
			}
		})
	}
}
