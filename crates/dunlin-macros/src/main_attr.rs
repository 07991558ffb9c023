//! `#[main]`: `async fn main` becomes a `fn main` that hands it to the runtime.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, ItemFn, LitInt, Result, Token, parse_quote, parse2};

/// The expansion, or an error beside an empty function of the same name: the compiler need not
/// say as well that `main` is missing.
pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let function: ItemFn = match parse2(function) {
        Ok(function) => function,
        Err(error) => return error.into_compile_error(),
    };
    let (visibility, name) = (function.vis.clone(), function.sig.ident.clone());
    try_expand(arguments, function).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#error #visibility fn #name() {})
    })
}

fn try_expand(arguments: TokenStream, mut function: ItemFn) -> Result<TokenStream> {
    let Arguments { workers } = parse2(arguments)?;
    let signature = &mut function.sig;
    if signature.asyncness.take().is_none() {
        let what = "the function must be `async`";
        return Err(Error::new_spanned(signature.fn_token, what));
    }
    if !signature.inputs.is_empty() {
        let what = "the function takes no arguments: `std::env::args` has the program's";
        return Err(Error::new_spanned(&signature.inputs, what));
    }
    if !signature.generics.params.is_empty() {
        let what = "the function has no generic parameters";
        return Err(Error::new_spanned(&signature.generics, what));
    }
    let workers = match workers {
        Some(workers) => quote!(::core::option::Option::Some(#workers)),
        None => quote!(::core::option::Option::None),
    };
    // The body stays an `async fn`, not a block: its mismatched types are then reported in place.
    let (signature, body) = (&function.sig, &function.block);
    let name = &signature.ident;
    function.block = parse_quote!({
        #[allow(clippy::unused_async)]
        async #signature #body
        ::dunlin::__rt::main(#workers, #name())
    });
    Ok(quote!(#function))
}

const KNOWN: &str = "only `workers = N` is known";

#[derive(Default)]
struct Arguments {
    /// A `usize` from 1.
    workers: Option<LitInt>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse().map_err(|_| input.error(KNOWN))?;
            if key != "workers" {
                return Err(Error::new(key.span(), KNOWN));
            }
            if arguments.workers.is_some() {
                return Err(Error::new(key.span(), "`workers` is given twice"));
            }
            input.parse::<Token![=]>()?;
            arguments.workers = Some(parse_workers(input)?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

fn parse_workers(input: ParseStream<'_>) -> Result<LitInt> {
    let (place, what) = (input.span(), "`workers` is a whole number from 1");
    let count: LitInt = input.parse().map_err(|_| Error::new(place, what))?;
    match count.base10_parse::<usize>() {
        Ok(1..) if matches!(count.suffix(), "" | "usize") => Ok(count),
        _ => Err(Error::new(count.span(), what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::{Blame, blame};

    const MAIN: &str = "async fn main() {}";

    fn refusal_of_arguments(arguments: &str) -> Blame {
        blame(arguments, |arguments| try_expand(arguments, syn::parse_str(MAIN)?))
    }

    fn refusal_of_function(function: &str) -> Blame {
        blame(function, |function| try_expand(TokenStream::new(), parse2(function)?))
    }

    #[test]
    fn expansion() {
        let function = quote! {
            /// Says.
            pub async fn main() -> Result { work().await }
        };
        let expected = quote! {
            /// Says.
            pub fn main() -> Result {
                #[allow(clippy::unused_async)]
                async fn main() -> Result { work().await }
                ::dunlin::__rt::main(::core::option::Option::None, main())
            }
        };
        let found = expand(TokenStream::new(), function);
        assert_eq!(found.to_string(), expected.to_string());
    }

    #[test]
    fn workers_are_counted() {
        for (arguments, count) in [("workers = 3", "3"), ("workers = 0x10usize,", "0x10usize")] {
            let found = expand(arguments.parse().expect(arguments), MAIN.parse().expect(MAIN));
            let found = found.to_string();
            assert!(found.contains(&format!("Some ({count})")), "{found}");
        }
    }

    #[test]
    fn refusals_of_workers() {
        let what = "`workers` is a whole number from 1";
        for count in ["0", "-1", "1.5", "\"2\"", "3u8", "many", "99999999999999999999999"] {
            let found = refusal_of_arguments(&format!("workers = {count}"));
            assert_eq!(found, (what.into(), count.into()));
        }
        assert_eq!(refusal_of_arguments("workers =").0, what);

        let twice = refusal_of_arguments("workers = 1, workers = 2");
        assert_eq!(twice, ("`workers` is given twice".into(), "workers".into()));
    }

    #[test]
    fn refusals_of_arguments() {
        let what = "only `workers = N` is known";
        assert_eq!(refusal_of_arguments("threads = 1"), (what.into(), "threads".into()));
        assert_eq!(refusal_of_arguments("3"), (what.into(), "3".into()));
        assert_eq!(refusal_of_arguments("workers"), ("expected `=`".into(), "".into()));
    }

    #[test]
    fn refusals_of_functions() {
        let what = "the function must be `async`";
        assert_eq!(refusal_of_function("fn main() {}"), (what.into(), "fn".into()));

        let what = "the function takes no arguments: `std::env::args` has the program's";
        assert_eq!(refusal_of_function("async fn main(a: u8) {}"), (what.into(), "a: u8".into()));

        let what = "the function has no generic parameters";
        assert_eq!(refusal_of_function("async fn main<T>() {}"), (what.into(), "<T>".into()));
    }

    #[test]
    fn a_refused_main_is_still_there() {
        let found = expand(
            TokenStream::new(),
            quote!(
                pub fn main() {
                    work()
                }
            ),
        )
        .to_string();
        assert!(found.contains("compile_error"), "{found}");
        assert!(
            found.ends_with(
                &quote!(
                    pub fn main() {}
                )
                .to_string()
            ),
            "{found}"
        );
    }
}
