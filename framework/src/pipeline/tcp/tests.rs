//! Two workers' TCP over frames.
