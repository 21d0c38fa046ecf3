//! The picture of a built pipeline: its nodes as an indented tree, each with a line about its
//! checks. Made by [`Node::outline`](super::Node::outline), at set-up or on request, never per
//! packet.

use core::fmt;

/// A tree of nodes under construction.
#[derive(Clone, Debug, Default)]
pub struct NodeTree {
    depth: usize,
    lines: Vec<(usize, &'static str, String)>,
    /// A node hands segments to the worker's TCP.
    has_tcp: bool,
}

impl NodeTree {
    /// An empty picture.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node with a line about it; `successors` adds its successors.
    pub fn node(&mut self, name: &'static str, says: impl Into<String>, successors: impl FnOnce(&mut Self)) {
        self.lines.push((self.depth, name, says.into()));
        self.depth += 1;
        successors(self);
        self.depth -= 1;
    }
}

impl NodeTree {
    /// The node that is being added hands segments to the worker's TCP.
    pub(super) fn note_tcp(&mut self) {
        self.has_tcp = true;
    }

    /// Adds nodes that do not use the worker's TCP.
    pub(super) fn apart_from_tcp(&mut self, nodes: impl FnOnce(&mut Self)) {
        let has_tcp = self.has_tcp;
        nodes(self);
        self.has_tcp = has_tcp;
    }

    /// Whether segments reach the worker's TCP.
    pub(crate) fn has_tcp(&self) -> bool {
        self.has_tcp
    }
}

impl fmt::Display for NodeTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, name, says) in &self.lines {
            writeln!(f, "{:indent$}{name:<width$} {says}", "", indent = depth * 2, width = 14 - (depth * 2).min(13))?;
        }
        Ok(())
    }
}
