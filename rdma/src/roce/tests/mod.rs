//! Two devices and the wire between them, in virtual time.

mod pair;
mod rc;
