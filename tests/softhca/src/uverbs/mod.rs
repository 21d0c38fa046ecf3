//! The kernel's side of libibverbs: frames of `write` and `ioctl` become requests to the model, its replies become responses.
