package crdpaths

import (
	"errors"
	"fmt"

	"k8s.io/client-go/util/jsonpath"
)

// checkColumn returns why the JSON path of a column is not evaluated. Paths that do not parse are accepted, as by Kubernetes, which does not evaluate them.
func (l Limits) checkColumn(path string) error {
	if len(path) > l.PathBytes {
		return fmt.Errorf("may not be more than %d bytes", l.PathBytes)
	}
	parser, err := jsonpath.Parse("", "{"+path+"}") // as the stock table convertor writes it
	if err != nil {
		return nil
	}
	work, err := l.workOf(parser.Root.Nodes)
	if err != nil {
		return err
	}
	if work.visits > l.Visits {
		return fmt.Errorf("may visit a field of an object more than %d times: use fewer steps, filters and unions", l.Visits)
	}
	return nil
}

// checkField returns why the JSON path of a selectable field is not evaluated: it must name one field. Stock validation compares parts of
// the path with the properties of the schema, whose names may be arbitrary, including other steps of a path.
func (l Limits) checkField(path string) error {
	if len(path) > l.PathBytes {
		return fmt.Errorf("may not be more than %d bytes", l.PathBytes)
	}
	parser, err := jsonpath.Parse("", "{"+path+"}")
	if err != nil {
		return err
	}
	for _, action := range parser.Root.Nodes {
		list, ok := action.(*jsonpath.ListNode)
		if !ok || len(parser.Root.Nodes) > 1 {
			return errors.New("must be one path")
		}
		for _, node := range list.Nodes {
			if _, ok := node.(*jsonpath.FieldNode); !ok {
				return errors.New("must consist of names of fields")
			}
		}
	}
	return nil
}

// work bounds the evaluation of steps on one value.
type work struct {
	// visits is how often one field inside the value may be visited.
	visits int
	// copies is how often one field may be in the result. All steps except unions yield each field at most once.
	copies int
}

// workOf adds the work of consecutive steps: each visits the result of the previous one.
func (l Limits) workOf(nodes []jsonpath.Node) (work, error) {
	total := work{copies: 1}
	for _, node := range nodes {
		step, err := l.workOfStep(node)
		if err != nil {
			return work{}, err
		}
		// Both factors are at most one more than the limit, so that the product does not overflow.
		total.visits = min(total.visits+total.copies*step.visits, l.Visits+1)
		total.copies = min(total.copies*step.copies, l.Visits+1)
	}
	return total, nil
}

func (l Limits) workOfStep(node jsonpath.Node) (work, error) {
	switch node := node.(type) {
	case *jsonpath.RecursiveNode:
		return work{}, errors.New("must not descend recursively (..): name the fields")
	case *jsonpath.IdentifierNode:
		if node.Name == "range" || node.Name == "end" {
			return work{}, fmt.Errorf("must not contain %s", node.Name)
		}
	case *jsonpath.ListNode:
		return l.workOf(node.Nodes)
	case *jsonpath.FilterNode:
		return l.workOfFilter(node)
	case *jsonpath.UnionNode:
		return l.workOfUnion(node)
	}
	return work{visits: 1, copies: 1}, nil
}

// workOfFilter counts the operands, which are evaluated on every element.
func (l Limits) workOfFilter(node *jsonpath.FilterNode) (work, error) {
	left, err := l.workOf(node.Left.Nodes)
	if err != nil {
		return work{}, err
	}
	right, err := l.workOf(node.Right.Nodes)
	return work{visits: 1 + left.visits + right.visits, copies: 1}, err
}

// workOfUnion counts every branch, because branches may yield the same fields.
func (l Limits) workOfUnion(node *jsonpath.UnionNode) (work, error) {
	var total work
	for _, branch := range node.Nodes {
		one, err := l.workOf(branch.Nodes)
		if err != nil {
			return work{}, err
		}
		total.visits = min(total.visits+one.visits, l.Visits+1)
		total.copies = min(total.copies+one.copies, l.Visits+1)
	}
	return total, nil
}
