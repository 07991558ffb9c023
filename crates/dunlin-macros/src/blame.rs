//! For tests of refusals: what an error says, and the words of the source that it points at.

use proc_macro2::TokenStream;

pub(crate) type Blame = (String, String);

/// What `expand` says against `source`.
pub(crate) fn blame(source: &str, expand: fn(TokenStream) -> syn::Result<TokenStream>) -> Blame {
    let tokens = source.parse().expect(source);
    match expand(tokens) {
        Ok(expansion) => panic!("{source} was accepted: {expansion}"),
        Err(error) => (error.to_string(), error.span().source_text().unwrap_or_default()),
    }
}
