"""Pure readers of what nodes and their tools print: text in, typed values and findings out."""
