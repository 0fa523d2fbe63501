package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the reference instead of comparing it")

const referenceFile = "../../docs/commands.md"

// TestReference keeps the reference of commands what the commands themselves say.
func TestReference(t *testing.T) {
	t.Setenv("PROA_DATA_DIR", "/var/lib/proa")
	var b strings.Builder
	b.WriteString("# Commands\n\nAs `proa COMMAND --help` prints it. Every command ends with status 0, or with 1 and one line that begins with\n`proa:` and says what is wrong.\n")
	for _, c := range rootCommand().Commands() {
		describe(&b, c)
	}
	if *update {
		if err := os.WriteFile(referenceFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("run: go test ./cmd/proa -update (-commands +file)\n%s", diff)
	}
}

func describe(b *strings.Builder, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", c.CommandPath(), strings.TrimSpace(text))
	if !c.HasSubCommands() {
		fmt.Fprintf(b, "\n    %s\n", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n%s", indented(c.Example))
	}
	if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "\nFlags:\n\n%s", indented(flags))
	}
	for _, sub := range c.Commands() {
		describe(b, sub)
	}
}

// indented makes a block of code.
func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		b.WriteString(strings.TrimRight("    "+strings.TrimPrefix(line, "  "), " \n") + "\n")
	}
	return b.String()
}
