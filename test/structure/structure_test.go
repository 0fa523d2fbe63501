// Package structure checks the shape of the module: which folders may import which, and that every package says what it
// is for.
package structure

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// edges lists what each top folder may import of this module, besides itself and internal/. Components never import
// each other: they meet in the API.
var edges = map[string][]string{
	"api":         {},
	"store":       {},
	"internal":    {},
	"client":      {"api"},
	"apiserver":   {"api", "client", "store"},
	"controllers": {"api", "client"},
	"scheduler":   {"api", "client"},
	"node":        {"api", "client"},
	"network":     {"api", "client"},
	"volume":      {"api", "client"},
	"cli":         {"api", "client"},
	"console":     {"api", "client"},
	"cluster":     {"api", "apiserver", "cli", "client", "console", "controllers", "network", "node", "scheduler", "store", "volume"},
	"cmd":         {"cli", "cluster", "node"},
	"test":        {"api", "apiserver", "cli", "client", "cluster", "controllers", "network", "node", "scheduler", "store", "volume"},
}

// forbidden modules: proa replaces them.
var forbidden = []string{"k8s.io/kubernetes", "k8s.io/apiserver/pkg/server", "k8s.io/apiserver/pkg/registry", "k8s.io/apiserver/pkg/storage"}

// apiImports is all that api may import from outside the standard library.
var apiImports = []string{"proa/", "k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/utils/", "github.com/robfig/cron/v3", "github.com/google/go-cmp"}

func TestStructure(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (strings.HasPrefix(name, ".") || name == "testdata") && file != root {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		test := strings.HasSuffix(name, "_test.go")
		if _, ok := documented[dir]; !ok {
			documented[dir] = false
		}
		if parsed.Doc != nil && len(parsed.Doc.Text()) > 20 {
			documented[dir] = true
		}
		top, _, _ := strings.Cut(rel, "/")
		allowed, known := edges[top]
		if !known {
			t.Errorf("%s: folder %q is not in the list of edges", rel, top)
		}
		for _, spec := range parsed.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			for _, f := range forbidden {
				if imported == f || strings.HasPrefix(imported, f+"/") {
					t.Errorf("%s imports %s, which proa replaces", rel, imported)
				}
			}
			if top == "api" && !test && strings.Contains(imported, ".") && !slices.ContainsFunc(apiImports, func(p string) bool { return strings.HasPrefix(imported, p) }) {
				t.Errorf("%s imports %s: api imports only k8s.io/api and apimachinery", rel, imported)
			}
			inner, ok := strings.CutPrefix(imported, "proa/")
			if !ok {
				continue
			}
			to, _, _ := strings.Cut(inner, "/")
			if to != top && to != "internal" && !slices.Contains(allowed, to) && !(test && top != "api" && (to == "apiserver" || to == "store" || to == "api" || to == "client")) {
				t.Errorf("%s imports %s: %s may import %v only", rel, imported, top, allowed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package in %s has no package comment", dir)
		}
	}
}
