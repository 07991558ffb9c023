//! The parts of an arm that `alt!` and `receive!` have in common.

use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{BinOp, Error, Expr, Result, Token};

pub(crate) fn parse_condition(input: ParseStream<'_>) -> Result<Expr> {
    fn has_let(condition: &Expr) -> bool {
        match condition {
            Expr::Let(_) => true,
            Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => has_let(&both.left) || has_let(&both.right),
            _ => false,
        }
    }
    let condition = input.parse()?;
    if has_let(&condition) {
        let what = "a condition must be a `bool`: write `matches!(value, pattern)`";
        return Err(Error::new_spanned(condition, what));
    }
    Ok(condition)
}

/// A body and the comma after it, which is optional where a `match` makes it optional.
pub(crate) fn parse_body(input: ParseStream<'_>, arrow: &Token![=>]) -> Result<Expr> {
    if input.is_empty() {
        return Err(Error::new_spanned(arrow, "a body must follow `=>`"));
    }
    let body = Expr::parse_with_earlier_boundary_rule(input)?;
    let comma: Option<Token![,]> = input.parse()?;
    if comma.is_none() && !input.is_empty() && !ends_an_arm(&body) {
        return Err(Error::new_spanned(body, "a comma must follow a body that is not a block"));
    }
    Ok(body)
}

fn ends_an_arm(body: &Expr) -> bool {
    match body {
        Expr::Block(_)
        | Expr::Const(_)
        | Expr::ForLoop(_)
        | Expr::If(_)
        | Expr::Loop(_)
        | Expr::Match(_)
        | Expr::TryBlock(_)
        | Expr::Unsafe(_)
        | Expr::While(_) => true,
        // An expression that an enclosing `macro_rules!` passed as one fragment.
        Expr::Group(group) => ends_an_arm(&group.expr),
        _ => false,
    }
}

/// Parses a `T`; an error blames the token that is there, or `before` if none is.
pub(crate) fn expect<T: Parse>(input: ParseStream<'_>, before: &impl ToTokens, what: &str) -> Result<T> {
    if input.is_empty() {
        return Err(Error::new_spanned(before, what));
    }
    input.parse().map_err(|_| input.error(what))
}
