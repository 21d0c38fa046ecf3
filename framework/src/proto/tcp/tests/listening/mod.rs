//! Who may connect.

mod admission;
