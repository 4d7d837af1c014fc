package gateway

const MaxUnproven = maxUnproven

// Unproven is how many connections are open that have shown no token.
func Unproven(g *Gateway) int {
	g.listener.mu.Lock()
	defer g.listener.mu.Unlock()
	return len(g.listener.open)
}
