// Package stack spares short-lived goroutines with deep calls the growth of their stacks in small steps.
package stack

// size is the room that most requests to the API need.
const size = 28 << 10

// Grow makes the stack of the calling goroutine large enough for a request. A new goroutine begins with little, and would
// otherwise double it again and again in the depth of the request, each time with many frames to be moved. It costs
// nothing where the stack is large already.
func Grow() { room(false) }

// room has its size on the stack whether or not it uses it.
//
//go:noinline
func room(use bool) byte {
	if !use {
		return 0
	}
	var space [size]byte
	touch(&space)
	return space[0]
}

//go:noinline
func touch(space *[size]byte) {
	for i := range space {
		space[i] = byte(i)
	}
}
