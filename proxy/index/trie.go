package index

import "math/bits"

// leaf is one entry of a trie: a pointer to an immutable value that includes its key, so that the key is stored once.
type leaf[K comparable] interface {
	comparable
	key() K
}

// trie is a persistent hash trie: put and remove return a new trie that shares all nodes with the old one except
// those on the path to the changed leaf. An update makes O(log32 n) small copies, a lookup the same number of steps
// without allocation. The zero trie with a hash function is empty.
type trie[K comparable, L leaf[K]] struct {
	root *node[L]
	size int
	hash func(K) uint64
}

// node has the leaves and the children of 32 slots, both compressed by a bitmap. A slot has a leaf, a child, or
// neither. Below the last hash bit there are no slots: all keys have the same hash, and leaves is a list.
type node[L any] struct {
	leafMap  uint32
	childMap uint32
	leaves   []L
	children []*node[L]
}

const (
	slotBits = 5
	hashBits = 64
)

func slotOf(hash uint64, shift uint) uint32 { return 1 << (hash >> shift & (1<<slotBits - 1)) }

func position(bitmap, slot uint32) int { return bits.OnesCount32(bitmap & (slot - 1)) }

// get returns the leaf of the key, or nil and false.
func (t trie[K, L]) get(k K) (found L, ok bool) {
	hash := t.hash(k)
	n := t.root
	for shift := uint(0); n != nil; shift += slotBits {
		if shift >= hashBits {
			if i := indexOf(n.leaves, k); i >= 0 {
				return n.leaves[i], true
			}
			return found, false
		}
		slot := slotOf(hash, shift)
		if n.leafMap&slot != 0 {
			// The leaf of another key must not be returned with ok false.
			if l := n.leaves[position(n.leafMap, slot)]; l.key() == k {
				return l, true
			}
			return found, false
		}
		if n.childMap&slot == 0 {
			return found, false
		}
		n = n.children[position(n.childMap, slot)]
	}
	return found, false
}

// put returns a trie with l as the leaf of its key.
func (t trie[K, L]) put(l L) trie[K, L] {
	var added bool
	t.root, added = t.putAt(t.root, t.hash(l.key()), 0, l)
	if added {
		t.size++
	}
	return t
}

func (t trie[K, L]) putAt(n *node[L], hash uint64, shift uint, l L) (*node[L], bool) {
	if n == nil {
		n = &node[L]{}
	}
	out := *n
	if shift >= hashBits {
		if i := indexOf(n.leaves, l.key()); i >= 0 {
			out.leaves = replaced(n.leaves, i, l)
			return &out, false
		}
		out.leaves = inserted(n.leaves, len(n.leaves), l)
		return &out, true
	}
	slot := slotOf(hash, shift)
	switch {
	case n.leafMap&slot != 0:
		i := position(n.leafMap, slot)
		other := n.leaves[i]
		if other.key() == l.key() {
			out.leaves = replaced(n.leaves, i, l)
			return &out, false
		}
		// Two keys share a slot: both move one level down.
		child, _ := t.putAt(nil, t.hash(other.key()), shift+slotBits, other)
		child, _ = t.putAt(child, hash, shift+slotBits, l)
		out.leafMap &^= slot
		out.leaves = without(n.leaves, i)
		out.childMap |= slot
		out.children = inserted(n.children, position(out.childMap, slot), child)
		return &out, true
	case n.childMap&slot != 0:
		i := position(n.childMap, slot)
		child, added := t.putAt(n.children[i], hash, shift+slotBits, l)
		out.children = replaced(n.children, i, child)
		return &out, added
	default:
		out.leafMap |= slot
		out.leaves = inserted(n.leaves, position(out.leafMap, slot), l)
		return &out, true
	}
}

// remove returns a trie without the key.
func (t trie[K, L]) remove(k K) trie[K, L] {
	root, removed := removeAt(t.root, t.hash(k), 0, k)
	if removed {
		t.root = root
		t.size--
	}
	return t
}

// removeAt returns nil for a node that is empty then.
func removeAt[K comparable, L leaf[K]](n *node[L], hash uint64, shift uint, k K) (*node[L], bool) {
	if n == nil {
		return nil, false
	}
	out := *n
	if shift >= hashBits {
		i := indexOf(n.leaves, k)
		if i < 0 {
			return n, false
		}
		out.leaves = without(n.leaves, i)
		return out.orNil(), true
	}
	slot := slotOf(hash, shift)
	switch {
	case n.leafMap&slot != 0:
		i := position(n.leafMap, slot)
		if n.leaves[i].key() != k {
			return n, false
		}
		out.leafMap &^= slot
		out.leaves = without(n.leaves, i)
		return out.orNil(), true
	case n.childMap&slot != 0:
		i := position(n.childMap, slot)
		child, removed := removeAt(n.children[i], hash, shift+slotBits, k)
		if !removed {
			return n, false
		}
		switch {
		case child == nil:
			out.childMap &^= slot
			out.children = without(n.children, i)
		case len(child.children) == 0 && len(child.leaves) == 1:
			// A single leaf moves up, so that the trie shrinks.
			out.childMap &^= slot
			out.children = without(n.children, i)
			out.leafMap |= slot
			out.leaves = inserted(n.leaves, position(out.leafMap, slot), child.leaves[0])
		default:
			out.children = replaced(n.children, i, child)
		}
		return out.orNil(), true
	}
	return n, false
}

func (n *node[L]) orNil() *node[L] {
	if len(n.leaves) == 0 && len(n.children) == 0 {
		return nil
	}
	return n
}

// forEach calls f for every leaf, in no particular order.
func (t trie[K, L]) forEach(f func(L)) { forEachLeaf(t.root, f) }

func forEachLeaf[L any](n *node[L], f func(L)) {
	if n == nil {
		return
	}
	for _, l := range n.leaves {
		f(l)
	}
	for _, child := range n.children {
		forEachLeaf(child, f)
	}
}

func indexOf[K comparable, L leaf[K]](leaves []L, k K) int {
	for i, l := range leaves {
		if l.key() == k {
			return i
		}
	}
	return -1
}

// The functions below return copies of exact size, because published nodes are immutable.

func replaced[T any](in []T, i int, v T) []T {
	out := make([]T, len(in))
	copy(out, in)
	out[i] = v
	return out
}

func inserted[T any](in []T, i int, v T) []T {
	out := make([]T, len(in)+1)
	copy(out, in[:i])
	out[i] = v
	copy(out[i+1:], in[i:])
	return out
}

func without[T any](in []T, i int) []T {
	if len(in) == 1 {
		return nil
	}
	out := make([]T, len(in)-1)
	copy(out, in[:i])
	copy(out[i:], in[i+1:])
	return out
}
