package workspace

import (
	"context"
	"fmt"
)

// createContext runs "kubectl ws create-context [NAME]". An empty name stands for the current path.
func (n *navigator) createContext(name string, overwrite bool) error {
	location, err := n.session.Location()
	if err != nil {
		return err
	}
	if name == "" {
		name = location.Path.String()
	}
	return n.addContext(namedContext{name: name, serverURL: n.session.URL(), overwrite: overwrite})
}

func (n *navigator) addContext(named namedContext) error {
	changed, line, err := named.add(n.session.Kubeconfig)
	if err != nil {
		return err
	}
	if n.session, err = n.session.Save(changed); err != nil {
		return err
	}
	_, err = fmt.Fprintln(n.Out, line)
	return err
}

// enterContext makes a new context of that name the current one, as enter does for the plugins' own context.
func (n *navigator) enterContext(ctx context.Context, named namedContext) error {
	if err := n.addContext(named); err != nil {
		return err
	}
	n.warnAboutClaims(ctx)
	return nil
}
