//! The origin of generated tokens: errors about them should point at users' code.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;

/// Moves `ours` to the source position of `theirs`, without their names: rustc's errors about `ours` then
/// point at `theirs`.
///
/// The span of an expression (or type) reaches from its first token to its last, so these two are moved.
pub(crate) fn placed(ours: TokenStream, theirs: &impl ToTokens) -> TokenStream {
    let theirs: Vec<_> = theirs.to_token_stream().into_iter().collect();
    let mut ours: Vec<_> = ours.into_iter().collect();
    let (start, end) = match theirs.as_slice() {
        [TokenTree::Group(only)] => (only.span_open(), only.span_close()),
        [first, .., TokenTree::Group(last)] => (first.span(), last.span_close()),
        [first, .., last] => (first.span(), last.span()),
        [only] => (only.span(), only.span()),
        [] => return ours.into_iter().collect(),
    };
    if let Some(last) = ours.last_mut() {
        last.set_span(Span::mixed_site().located_at(end));
    }
    if let Some(first) = ours.first_mut() {
        first.set_span(Span::mixed_site().located_at(start));
    }
    ours.into_iter().collect()
}
