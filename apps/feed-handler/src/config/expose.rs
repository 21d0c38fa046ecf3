//! `[expose]`: the port over which other machines read the books.

use serde::Deserialize;

use super::words::{Port, within};
use crate::expose::ExposePlan;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExposeSection {
    via: Option<String>,
    port: Option<Port>,
    books: Option<Books>,
    readers: Option<Readers>,
}

checked! {
    Books(usize) from "i64" as i64: |value| within(value, 1, 1 << 20, "books that are exposed");
    Readers(usize) from "i64" as i64: |value| within(value, 1, 1_024, "readers");
}

impl ExposeSection {
    /// The plan, where a flag or the section names a port.
    pub(super) fn plan(&self, via: Option<&str>) -> Option<ExposePlan> {
        let plan = ExposePlan::new(via.or(self.via.as_deref())?);
        Some(ExposePlan {
            port: self.port.map_or(plan.port, |port| port.0),
            books: self.books.map_or(plan.books, |books| books.0),
            readers: self.readers.map_or(plan.readers, |readers| readers.0 as u32),
            ..plan
        })
    }
}
