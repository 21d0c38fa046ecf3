//! Captures.
