package access

func Identify(t *Tokens, secret string) (Identity, error) { return t.identify(secret) }
