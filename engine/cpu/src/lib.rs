//! CPU kernels of the forward pass and the threads that run them.
