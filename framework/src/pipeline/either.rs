//! One of two nodes, chosen when the pipeline is built: a configuration decides without a type of
//! its own for each outcome. Costs a branch that always goes the same way.

use super::node::{Cx, Node};
use super::outline::Outline;
use crate::mem::Mbuf;

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

    fn kept(&self) -> usize {
        match self {
            Self::Left(node) => node.kept(),
            Self::Right(node) => node.kept(),
        }
    }

    fn outline(&self, outline: &mut Outline) {
        match self {
            Self::Left(node) => node.outline(outline),
            Self::Right(node) => node.outline(outline),
        }
    }
}
