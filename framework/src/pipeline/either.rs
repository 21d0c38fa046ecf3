//! One of two nodes, chosen when the pipeline is built, so that a configuration can decide without
//! a pipeline type for each outcome. Costs a branch that always goes the same way.

use super::node::{Cx, Node};
use super::outline::NodeTree;
use crate::mem::Mbuf;
use crate::time::Instant;

/// One of two nodes.
#[derive(Debug)]
pub enum Either<L, R> {
    /// The first.
    Left(L),
    /// The other.
    Right(R),
}

impl<A, L: Node<A>, R: Node<A>> Node<A> for Either<L, R> {
    #[inline]
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        match self {
            Self::Left(node) => node.push(mbuf, app, cx),
            Self::Right(node) => node.push(mbuf, app, cx),
        }
    }

    #[inline]
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        match self {
            Self::Left(node) => node.tick(app, cx),
            Self::Right(node) => node.tick(app, cx),
        }
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        match self {
            Self::Left(node) => node.next_deadline(cx),
            Self::Right(node) => node.next_deadline(cx),
        }
    }

    fn kept(&self) -> usize {
        match self {
            Self::Left(node) => node.kept(),
            Self::Right(node) => node.kept(),
        }
    }

    fn outline(&self, outline: &mut NodeTree) {
        match self {
            Self::Left(node) => node.outline(outline),
            Self::Right(node) => node.outline(outline),
        }
    }
}
