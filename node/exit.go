package node

import (
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of a termination message: from the file, and from the end of the log.
const (
	messageLimit    = 4096
	logMessageLimit = 2048
	logMessageLines = 80
)

// readExits keeps the last words of containers that have ended since the last look.
func (n *Node) readExits(p *pod, api *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	present := map[string]bool{}
	for _, list := range p.containers {
		for _, c := range list {
			present[c.Id] = true
			if c.State != cri.ContainerState_CONTAINER_EXITED {
				continue
			}
			if _, ok := p.exitText[c.Id]; ok {
				continue
			}
			if p.exitText == nil {
				p.exitText = map[string]string{}
			}
			p.exitText[c.Id] = lastWords(c)
		}
	}
	for id := range p.exitText {
		if !present[id] {
			delete(p.exitText, id)
		}
	}
}

func lastWords(c *cri.ContainerStatus) string {
	path := c.Annotations[annotationTerminationPath]
	for _, m := range c.Mounts {
		if path == "" || m.ContainerPath != path {
			continue
		}
		file, err := os.Open(m.HostPath)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(file, messageLimit))
		_ = file.Close() // only read
		if err == nil && len(data) > 0 {
			return string(data)
		}
	}
	if c.Annotations[annotationTerminationPolicy] == string(corev1.TerminationMessageFallbackToLogsOnError) && c.ExitCode != 0 && c.LogPath != "" {
		return logTail(c.LogPath)
	}
	return ""
}

// logTail is the end of a container's log, without the time and stream of each line.
func logTail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	const window = 64 << 10
	if info, err := file.Stat(); err == nil && info.Size() > window {
		if _, err := file.Seek(-window, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	lines := strings.SplitAfter(string(data), "\n")
	if len(lines) > logMessageLines {
		lines = lines[len(lines)-logMessageLines-1:]
	}
	var b strings.Builder
	for _, line := range lines {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) < 4 {
			continue
		}
		text := parts[3]
		if parts[2] == "P" {
			text = strings.TrimSuffix(text, "\n")
		}
		b.WriteString(text)
	}
	out := b.String()
	return out[max(len(out)-logMessageLimit, 0):]
}
