package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// State is what a running server leaves in DataDir/state.json for the other commands.
type State struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Server is the URL of the API.
	Server string `json:"server"`
	// NodeAddress of the first node, empty without nodes.
	NodeAddress string `json:"nodeAddress,omitempty"`
	// Nodes are the names of this machine's real nodes, the first one in the machine's own namespaces.
	Nodes []string `json:"nodes,omitempty"`
	// Agent says that the directory is that of a node which has joined the cluster at Server.
	Agent bool `json:"agent,omitempty"`
}

// nodeDir is where a node of the state in dir keeps its data.
func (s *State) nodeDir(dir, name string) string {
	if s.Agent {
		return dir
	}
	return nodeDir(dir, name)
}

// ErrNotRunning says that no server uses the data directory.
var ErrNotRunning = errors.New("proa is not running")

// command is the line by which a user runs a proa command on the cluster in dir.
func command(dir, name string) string {
	if abs, err := filepath.Abs(dir); err == nil && abs != DefaultDataDir() {
		return "proa " + name + " --data-dir " + dir
	}
	return "proa " + name
}

// Running returns the state of the server that uses dir, or ErrNotRunning.
func Running(dir string) (*State, error) {
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; start it with: %s", ErrNotRunning, command(dir, "up"))
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return nil, fmt.Errorf("%w; start it with: %s", ErrNotRunning, command(dir, "up"))
	}
	return loadState(dir)
}

func loadState(dir string) (*State, error) {
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read %s/state.json: %w", dir, err)
	}
	return &s, nil
}

func (s *State) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "state.json.new")
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, "state.json"))
}

// lockDir makes the data directory and takes it for this process; the lock ends with the process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner, _ := os.ReadFile(lock.Name())
		lock.Close()
		return nil, fmt.Errorf("%s is in use by process %s; stop it with: %s", dir, strings.TrimSpace(string(owner)), command(dir, "down"))
	}
	if err := lock.Truncate(0); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}
