package main

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMistakes says in one line what is wrong with a command line.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{`unknown command "frob"; see: proa --help`, []string{"frob"}},
		{`unknown command "stauts"; did you mean: proa status`, []string{"stauts"}},
		{`unknown command "lod"; did you mean: proa image load`, []string{"image", "lod"}},
		{`unknown flag: --frob; see: proa up --help`, []string{"up", "--frob"}},
		{`proa up takes no argument such as "extra"; see: proa up --help`, []string{"up", "extra"}},
		{`name at least one image archive; see: proa image load --help`, []string{"image", "load"}},
		{`--demo needs a node; leave --no-node out`, []string{"up", "--demo", "--no-node"}},
		{`--pod-cidr "10.0.0.0": use a range such as 10.244.0.0/16`, []string{"up", "--pod-cidr", "10.0.0.0"}},
		{`--node-address "me": use an IP address`, []string{"server", "--node-address", "me"}},
	} {
		root := rootCommand()
		root.SetOut(io.Discard)
		root.SetArgs(c.args)
		if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n%v, want\n%s", c.args, err, c.want)
		}
	}
}

func TestKeepFiles(t *testing.T) {
	left, err := unix.Dup(0) // as a shell leaves it: open for programs started from here
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(left)
	keepFiles()
	if flags, err := unix.FcntlInt(uintptr(left), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v: programs get the caller's file", flags, err)
	}
}
