//! The resting orders of one symbol, bounded, with price and time priority.
//!
//! Each side is one sorted vector whose last order is executed next. A hundred orders are 1.6 KB,
//! so an insertion moves less memory than a tree or a list would touch, and any order can be picked
//! by its position.

use market::Side;

/// One resting order. Prices are in cents: the simulated market has that tick only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Order {
    pub reference: u64,
    pub price: u32,
    pub shares: u32,
}

/// Both sides of one symbol.
#[derive(Debug, Default)]
pub(super) struct Book {
    bids: Vec<Order>,
    asks: Vec<Order>,
}

/// Price and shares of the best level of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    pub price: u32,
    pub shares: u64,
}

impl Book {
    pub(super) fn orders(&self, side: Side) -> &[Order] {
        match side {
            Side::Buy => &self.bids,
            Side::Sell => &self.asks,
        }
    }

    fn orders_mut(&mut self, side: Side) -> &mut Vec<Order> {
        match side {
            Side::Buy => &mut self.bids,
            Side::Sell => &mut self.asks,
        }
    }

    /// Best price of a side.
    pub(super) fn best(&self, side: Side) -> Option<u32> {
        self.orders(side).last().map(|order| order.price)
    }

    /// Best level of a side, all its orders together.
    pub(super) fn top(&self, side: Side) -> Option<Level> {
        let price = self.best(side)?;
        let level = self.orders(side).iter().rev().take_while(|order| order.price == price);
        Some(Level { price, shares: level.map(|order| u64::from(order.shares)).sum() })
    }

    /// Adds an order after the others of its price.
    pub(super) fn insert(&mut self, side: Side, order: Order) {
        let orders = self.orders_mut(side);
        let idx = match side {
            Side::Buy => orders.partition_point(|resting| resting.price < order.price),
            Side::Sell => orders.partition_point(|resting| resting.price > order.price),
        };
        orders.insert(idx, order);
    }

    /// Takes an order out.
    pub(super) fn remove(&mut self, side: Side, idx: usize) -> Order {
        self.orders_mut(side).remove(idx)
    }

    /// Reduces an order by some shares, and removes it where none are left.
    pub(super) fn reduce(&mut self, side: Side, idx: usize, shares: u32) {
        let orders = self.orders_mut(side);
        orders[idx].shares -= shares;
        if orders[idx].shares == 0 {
            orders.remove(idx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(side: Side, prices: &[u32]) -> Book {
        let mut book = Book::default();
        for (reference, &price) in (1..).zip(prices) {
            book.insert(side, Order { reference, price, shares: 100 });
        }
        book
    }

    #[test]
    fn empty_side_has_no_top() {
        assert_eq!(Book::default().top(Side::Buy), None);
    }

    #[test]
    fn best_bid_is_highest_and_best_ask_lowest() {
        assert_eq!(book(Side::Buy, &[10, 12, 11]).top(Side::Buy), Some(Level { price: 12, shares: 100 }));
        assert_eq!(book(Side::Sell, &[12, 10, 11, 10]).top(Side::Sell), Some(Level { price: 10, shares: 200 }));
    }

    #[test]
    fn oldest_order_of_the_best_price_is_last() {
        let references = |side| book(side, &[10, 10, 10]).orders(side).last().map(|order| order.reference);
        assert_eq!(references(Side::Buy), Some(1));
        assert_eq!(references(Side::Sell), Some(1));
    }

    #[test]
    fn order_without_shares_leaves_the_book() {
        let mut book = book(Side::Buy, &[10, 11]);
        book.reduce(Side::Buy, 1, 40);
        assert_eq!(book.top(Side::Buy), Some(Level { price: 11, shares: 60 }));
        book.reduce(Side::Buy, 1, 60);
        assert_eq!(book.top(Side::Buy), Some(Level { price: 10, shares: 100 }));
    }
}
