package usage

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// columns are those of CSV. New ones are added at the end.
var columns = []string{
	"month", "workspace", "requests", "gets", "lists", "watches", "writes", "others", "watch_seconds", "received_bytes", "sent_bytes", "stored_objects", "stored_bytes",
}

// row is a line of the output.
type row struct {
	path  logicalcluster.Path
	usage usage
}

func (r row) values(month string) []string {
	u := r.usage
	values := []string{month, r.path.String()}
	for _, value := range []float64{u.requests(), u.gets, u.lists, u.watches, u.writes, u.others} {
		values = append(values, strconv.FormatFloat(value, 'f', -1, 64))
	}
	values = append(values, strconv.FormatFloat(u.watchSeconds, 'f', 3, 64))
	values = append(values, strconv.FormatFloat(u.receivedBytes, 'f', -1, 64), strconv.FormatFloat(u.sentBytes, 'f', -1, 64))
	if u.stored == nil {
		return append(values, "", "")
	}
	return append(values, strconv.FormatFloat(u.stored.objects, 'f', -1, 64), strconv.FormatFloat(u.stored.bytes, 'f', -1, 64))
}

// run runs "kubectl kcp usage".
func (o *options) run(ctx context.Context, flags *connection.Flags) error {
	session, err := flags.Open()
	if err != nil {
		return err
	}
	installation, top, err := workspace.Resolve(ctx, session, o.workspace)
	if err != nil {
		return err
	}
	r := &reader{installation: installation, month: o.month, current: time.Now().UTC().Format(monthFormat), progress: flags.ErrOut, reported: time.Now()}
	tree, err := r.read(ctx, top)
	if err != nil {
		return err
	}
	rows := tree.rows()
	if o.sum {
		rows = tree.sums()
	}
	if err := o.print(flags.Out, rows); err != nil {
		return err
	}
	if failures := tree.failures(); len(failures) > 0 {
		return fmt.Errorf("the output is not complete:\n%w", errors.Join(failures...))
	}
	return nil
}

func (o *options) print(out io.Writer, rows []row) error {
	if o.output == formatCSV {
		w := csv.NewWriter(out)
		_ = w.Write(columns) // Error returns what failed
		for _, r := range rows {
			_ = w.Write(r.values(o.month))
		}
		w.Flush()
		return w.Error()
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for i, column := range columns[1:] {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, strings.ToUpper(strings.ReplaceAll(column, "_", " ")))
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r.values(o.month)[1:], "\t"))
	}
	return w.Flush()
}

// rows returns each workspace by itself.
func (n *node) rows() []row {
	all := []row{{n.path, n.usage}}
	for _, child := range n.children {
		all = append(all, child.rows()...)
	}
	return all
}

// sums returns the workspace and its children with the sums of all below them.
func (n *node) sums() []row {
	all := []row{{n.path, n.sum()}}
	for _, child := range n.children {
		all = append(all, row{child.path, child.sum()})
	}
	return all
}

func (n *node) sum() usage {
	sum := n.usage
	for _, child := range n.children {
		sum.add(child.sum())
	}
	return sum
}

func (n *node) failures() []error {
	all := n.errs
	for _, child := range n.children {
		all = append(all, child.failures()...)
	}
	return all
}
