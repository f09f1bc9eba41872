package celcost_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"

	"github.com/atoll-dev/atoll/internal/celcost"
)

const (
	// fuzzLimit is the cost limit of fuzzed evaluations. It is far below that of the servers, so that an expression
	// whose cost is not counted is seen, but ends.
	fuzzLimit = 20000
	// perCost is the time that one unit of cost may take, on a busy machine; fixed is that of an evaluation.
	perCost = 100 * time.Microsecond
	fixed   = 2 * time.Second
)

// FuzzTimeFollowsCost builds expressions from bytes and asserts that the time of an evaluation is at most a constant times its counted
// cost, and that no evaluation continues after its deadline.
func FuzzTimeFollowsCost(f *testing.F) {
	for seed := range 40 {
		f.Add([]byte(strings.Repeat(string(rune('a'+seed)), 40)), uint8(seed))
	}
	env := environmentWith(f)
	f.Fuzz(func(t *testing.T, choices []byte, items uint8) {
		if len(choices) > 200 {
			return
		}
		b := &builder{choices: choices}
		expression := b.boolean(6)
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			return // not within the types of the language
		}
		program, err := env.Program(ast, celcost.ProgramOption(fuzzLimit), cel.CostLimit(fuzzLimit), cel.InterruptCheckFrequency(100))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), fixed)
		defer cancel()
		type outcome struct {
			cost  uint64
			taken time.Duration
		}
		done := make(chan outcome, 1)
		go func() {
			started := time.Now()
			_, details, _ := program.ContextEval(ctx, map[string]any{"input": input(int(items)), "text": strings.Repeat("ab1-", int(items))})
			o := outcome{cost: fuzzLimit, taken: time.Since(started)}
			if details != nil && details.ActualCost() != nil {
				o.cost = *details.ActualCost()
			}
			done <- o
		}()
		select {
		case o := <-done:
			if most := fixed + time.Duration(o.cost)*perCost; o.taken > most {
				t.Errorf("cost %d took %s, more than %s, of %s", o.cost, o.taken, most, expression)
			}
		case <-time.After(fixed + fuzzLimit*perCost):
			t.Errorf("the evaluation goes on after its deadline: %s", expression)
		}
	})
}

// input is an object of a size that grows with n.
func input(n int) any {
	list := make([]any, n)
	for i := range list {
		list[i] = map[string]any{"name": fmt.Sprint(i), "tags": []any{"a", "b"}}
	}
	return list
}

// builder writes an expression of nested calls. Each choice is a byte of the input of the fuzzer.
type builder struct {
	choices []byte
	names   []string
	// eager leaves out conditions and empty lists, which may decide that a part of the expression is not evaluated.
	eager bool
}

func (b *builder) choose(n int) int {
	if len(b.choices) == 0 {
		return 0
	}
	c := int(b.choices[0]) % n
	b.choices = b.choices[1:]
	return c
}

func (b *builder) boolean(depth int) string {
	switch b.choose(10) {
	case 0:
		return fmt.Sprintf("(%s == %s)", b.list(depth-1), b.list(depth-1))
	case 1:
		return fmt.Sprintf("(%s != %s)", b.list(depth-1), b.list(depth-1))
	case 2:
		return fmt.Sprintf("(dyn(%s) in %s)", b.list(depth-1), b.list(depth-1))
	case 3:
		return fmt.Sprintf("(%s).matches('(a|b|[a-z]{3}){1,20}')", b.text(depth-1))
	case 4:
		return fmt.Sprintf("(%s).contains(%s)", b.text(depth-1), b.text(depth-1))
	case 5:
		return fmt.Sprintf("sets.%s(%s, %s)", []string{"contains", "equivalent", "intersects"}[b.choose(3)], b.list(depth-1), b.list(depth-1))
	case 6:
		return fmt.Sprintf("((%s).size() > 3)", b.text(depth-1))
	case 7:
		return fmt.Sprintf("((%s).size() > 3)", b.list(depth-1))
	case 8:
		if depth > 1 {
			return fmt.Sprintf("(%s && %s)", b.boolean(depth-1), b.boolean(depth-1))
		}
	case 9:
		return b.over(depth, "all", b.boolean)
	}
	return "true"
}

func (b *builder) text(depth int) string {
	if depth <= 0 {
		return "text"
	}
	switch b.choose(7) {
	case 0:
		return fmt.Sprintf("'%%s'.format([%s])", b.list(depth-1))
	case 1:
		return fmt.Sprintf("(%s + %s)", b.text(depth-1), b.text(depth-1))
	case 2:
		return fmt.Sprintf("(%s).replace('a', %s)", b.text(depth-1), b.text(depth-1))
	case 3:
		return fmt.Sprintf("[%s, %s].join(%s)", b.text(depth-1), b.text(depth-1), b.text(depth-1))
	case 4:
		return fmt.Sprintf("(%s).upperAscii()", b.text(depth-1))
	case 5:
		return fmt.Sprintf("string((%s).lastIndexOf(%s))", b.text(depth-1), b.text(depth-1))
	}
	return "text"
}

func (b *builder) list(depth int) string {
	if depth <= 0 {
		return b.name()
	}
	switch b.choose(9) {
	case 0:
		return fmt.Sprintf("[dyn(%s), dyn(%s)]", b.list(depth-1), b.list(depth-1))
	case 1:
		return fmt.Sprintf("(%s + %s)", b.list(depth-1), b.list(depth-1))
	case 2:
		return b.over(depth, "map", b.list)
	case 3:
		if !b.eager {
			return b.over(depth, "filter", b.boolean)
		}
	case 4:
		return fmt.Sprintf("(%s).flatten()", b.list(depth-1))
	case 5:
		return fmt.Sprintf("(%s).distinct()", b.list(depth-1))
	case 6:
		return fmt.Sprintf("(%s).split('b')", b.text(depth-1))
	case 7:
		n := b.choose(200)
		if b.eager {
			n++
		}
		return fmt.Sprintf("lists.range(%d)", n)
	}
	return b.name()
}

// over is a comprehension, in whose body the variable can be used.
func (b *builder) over(depth int, macro string, body func(int) string) string {
	if depth <= 1 {
		return map[string]string{"all": "true"}[macro] + map[string]string{"map": "input", "filter": "input"}[macro]
	}
	variable := fmt.Sprintf("v%d", len(b.names))
	over := b.list(depth - 1)
	b.names = append(b.names, variable)
	defer func() { b.names = b.names[:len(b.names)-1] }()
	return fmt.Sprintf("(%s).%s(%s, %s)", over, macro, variable, body(depth-1))
}

func (b *builder) name() string {
	if n := b.choose(len(b.names) + 2); n > 0 && n <= len(b.names) {
		return fmt.Sprintf("[dyn(%s)]", b.names[n-1])
	}
	return "input"
}
