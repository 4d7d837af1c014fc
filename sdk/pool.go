package sdk

import agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"

// PoolClass is what sandboxes have in common that can stand in for each other until they are taken.
type PoolClass struct {
	// Class is a digest of all that belongs to it.
	Class, Image string
	// Size is how many are kept now.
	Size, Ready, Making int
	// Hits are the creates that took one, Misses those that found none.
	Hits, Misses uint64
	// Problem is what keeps them from being made; "": nothing.
	Problem string
}

func poolClasses(list []*agboxv1.PoolClass) (classes []PoolClass) {
	for _, c := range list {
		classes = append(classes, PoolClass{Class: c.GetClass(), Image: c.GetImage(), Size: int(c.GetSize()), Ready: int(c.GetReady()),
			Making: int(c.GetMaking()), Hits: c.GetHits(), Misses: c.GetMisses(), Problem: c.GetProblem()})
	}
	return classes
}
