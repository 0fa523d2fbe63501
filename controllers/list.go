package controllers

// List returns every controller, in the order they start.
func List() []Entry {
	return []Entry{}
}
