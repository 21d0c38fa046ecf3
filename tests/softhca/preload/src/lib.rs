//! Between libibverbs and the kernel: calls on a uverbs descriptor are answered by the model, all others pass.
