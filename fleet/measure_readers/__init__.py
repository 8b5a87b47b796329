"""Pure readers of what benchmarks print: text in, one value a GPU or a node out, or why there is none."""
