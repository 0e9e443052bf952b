package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/bursarhq/bursar/internal/lockpath"
)

// step is an edge as the record has it: without a count, which differs from run to run. Held is empty where Took was the
// transaction's first lock.
type step struct {
	Path string `json:"path"`
	Held string `json:"held,omitempty"`
	Took string `json:"took"`
}

func (s step) String() string {
	if s.Held == "" {
		return fmt.Sprintf("%s: first %s", s.Path, s.Took)
	}
	return fmt.Sprintf("%s: %s → %s", s.Path, s.Held, s.Took)
}

// steps is a set of edges, sorted.
type steps []step

func (s steps) sorted() steps {
	slices.SortFunc(s, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Held, b.Held), cmp.Compare(a.Took, b.Took))
	})
	return slices.Compact(s)
}

func (s steps) has(one step) bool { return slices.Contains(s, one) }

func (s steps) with(more steps) steps { return slices.Concat(s, more).sorted() }

// strangers are the edges that the table does not allow.
func (s steps) strangers(paths []lockpath.Path) steps {
	var out steps
	for _, one := range s {
		i := slices.IndexFunc(paths, func(p lockpath.Path) bool { return p.Name == one.Path })
		if i < 0 || !allows(paths[i], one) {
			out = append(out, one)
		}
	}
	return out
}

// allowed is the edges without the strangers.
func (s steps) allowed(paths []lockpath.Path) steps {
	strangers := s.strangers(paths)
	return slices.DeleteFunc(slices.Clone(s), strangers.has)
}

// allows tells whether the table has a path take a class after, or several of, another.
func allows(p lockpath.Path, s step) bool {
	held, took := position(p, s.Held), position(p, s.Took)
	return took >= 0 && (s.Held == "" || held >= 0 && held <= took)
}

// position is the place of a class among the steps of a path; -1 where it is not among them.
func position(p lockpath.Path, class string) int {
	return slices.IndexFunc(p.Steps(), func(s lockpath.Step) bool { return s.Class.Name == class })
}

func readRecord(name string) (steps, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the record, in the module's root: %w", err)
	}
	var s steps
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the record: %s: %w", name, err)
	}
	return s.sorted(), nil
}

// write writes one edge a line, so that a change of the record shows as the edges it is about.
func (s steps) write(name string) error {
	text := []byte("[\n")
	for i, one := range s {
		line, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("write the record: %w", err)
		}
		text = append(append(text, '\t'), line...)
		if i < len(s)-1 {
			text = append(text, ',')
		}
		text = append(text, '\n')
	}
	if err := os.WriteFile(name, append(text, "]\n"...), 0o644); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}
