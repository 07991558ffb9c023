//! For tests of refusals: the text of an error, and the words of the source at which it points.

use proc_macro2::TokenStream;

pub(crate) type Blame = (String, String);

/// The errors of `expand` against `source`.
pub(crate) fn blame(source: &str, expand: fn(TokenStream) -> syn::Result<TokenStream>) -> Blame {
    let tokens = source.parse().expect(source);
    match expand(tokens) {
        Ok(expansion) => panic!("{source} was accepted: {expansion}"),
        Err(error) => (error.to_string(), error.span().source_text().unwrap_or_default()),
    }
}
