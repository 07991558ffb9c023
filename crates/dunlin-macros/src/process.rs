//! `#[process]`: an `async fn` becomes a function of the parameters that are not wired, which returns what a
//! scope can fork.
//!
//! The expansion of `#[process] async fn indent(#[receiver("raw", fifo(4))] mut raw: Receiver<String>, by:
//! usize) -> Result { .. }`, with names shortened:
//!
//! ```text
//! fn indent(by: usize) -> impl Wired<Output = Result> {
//!     async fn indent(mut raw: Receiver<String>, by: usize) -> Result { .. }
//!     named("indent", move |scope| async move {
//!         let end0 = join::<Receiver<String>, AsReceiver>(&scope, "raw").policy(fifo(4)).await?;
//!         Ok(indent(end0, by))            // all ends are joined, and nothing has run yet
//!     })
//! }
//! ```
//!
//! - The body stays an `async fn`, not a block, so that its type errors are reported in place.
//! - With `propagate` the body is an async block within that function, which only borrows the ends that it
//!   does not give away. So these ends still exist when the block has ended, and can be poisoned before they
//!   are left.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, GenericParam, ItemFn, Lifetime, Pat, PatType, Result, ReturnType, Safety, Token,
    Type, parse_quote, parse2,
};

use crate::place::placed;

pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let Arguments { propagate } = parse2(arguments)?;
    let function: ItemFn = parse2(function)?;
    check(&function)?;
    let inputs = function.sig.inputs.iter().enumerate();
    let mut parameters = inputs.map(|(index, input)| Parameter::of(index, input)).collect::<Result<Vec<_>>>()?;
    if parameters.iter().any(Parameter::uses_arguments) {
        // An argument may serve only to join an end.
        let arguments = parameters.iter_mut().filter(|parameter| matches!(parameter.wire, Wire::Argument));
        arguments.for_each(|parameter| parameter.argument.attrs.push(parse_quote!(#[allow(unused_variables)])));
    }
    Ok(expand_checked(propagate, function, &parameters))
}

/// The content of the attribute itself.
#[derive(Default)]
struct Arguments {
    propagate: bool,
}

const KNOWN: &str = "only `propagate` is known";

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse().map_err(|_| input.error(KNOWN))?;
            if key != "propagate" {
                return Err(Error::new(key.span(), KNOWN));
            }
            if arguments.propagate {
                return Err(Error::new(key.span(), "`propagate` is given twice"));
            }
            arguments.propagate = true;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

/// Refuses functions that cannot be processes.
fn check(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(signature.fn_token, "a process must be an `async fn`"));
    }
    if let Safety::Unsafe(word) = &signature.safety {
        return Err(Error::new_spanned(word, "a process must be a safe function"));
    }
    if let Some(abi) = &signature.abi {
        return Err(Error::new_spanned(abi, "a process must have the Rust ABI"));
    }
    let lifetime = signature.generics.params.iter().find(|parameter| matches!(parameter, GenericParam::Lifetime(_)));
    if let Some(lifetime) = lifetime {
        let what = "a process may outlive the code that forks it, so it has no lifetimes: let the process own what it \
                    uses";
        return Err(Error::new_spanned(lifetime, what));
    }
    if let ReturnType::Type(_, returned) = &signature.output
        && let Some(place) = borrowed(returned)
    {
        return Err(Error::new(place, "a process must own what it returns"));
    }
    Ok(())
}

/// Where a type visibly borrows for less than `'static`.
fn borrowed(of: &Type) -> Option<Span> {
    let is_static = |lifetime: &Option<Lifetime>| lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
    match of {
        Type::Reference(reference) if !is_static(&reference.lifetime) => Some(reference.span()),
        Type::Reference(reference) => borrowed(&reference.elem),
        Type::Paren(inner) => borrowed(&inner.elem),
        Type::Group(inner) => borrowed(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.iter().find_map(borrowed),
        Type::Array(array) => borrowed(&array.elem),
        _ => None,
    }
}

/// One parameter of the function.
struct Parameter {
    /// As the function declares it, without our attributes.
    argument: PatType,
    /// Its name in the outer function, or in the wiring.
    name: Ident,
    wire: Wire,
}

/// Where a parameter's value comes from.
enum Wire {
    /// The caller of the function.
    Argument,
    /// The scope itself.
    Scope,
    /// A name of the scope.
    Name(Box<Named>),
}

struct Named {
    kind: Ident,
    place: Span,
    name: Expr,
    policy: Option<Expr>,
    portable: Option<Ident>,
}

impl Parameter {
    fn of(index: usize, input: &FnArg) -> Result<Self> {
        let FnArg::Typed(argument) = input else {
            let what = "a process must be a function without `self`: pass what it uses as arguments";
            return Err(Error::new_spanned(input, what));
        };
        let mut argument = argument.clone();
        let (ours, others): (Vec<_>, Vec<_>) =
            argument.attrs.drain(..).partition(|attribute| kind(attribute).is_some());
        argument.attrs = others;
        if let [_, second, ..] = ours.as_slice() {
            return Err(Error::new_spanned(second, "this parameter is already wired"));
        }
        let wire = ours.into_iter().next().map_or(Ok(Wire::Argument), Wire::of)?;
        if let Some(place) = borrowed(&argument.ty) {
            let what = match wire {
                Wire::Argument => "a process must own its arguments: it may outlive the code that forks it",
                Wire::Scope | Wire::Name(_) => "a process must own what it joins",
            };
            return Err(Error::new(place, what));
        }
        let name = match &*argument.pat {
            Pat::Ident(pattern) if matches!(wire, Wire::Argument) && pattern.by_ref.is_none() => pattern.ident.clone(),
            Pat::Ident(_) => format_ident!("end{index}", span = Span::mixed_site()),
            other if matches!(wire, Wire::Name(_)) => {
                return Err(Error::new_spanned(other, "a joined parameter must have one name"));
            }
            _ => format_ident!("argument{index}", span = Span::mixed_site()),
        };
        Ok(Self { argument, name, wire })
    }

    /// Whether joining may use arguments.
    fn uses_arguments(&self) -> bool {
        match &self.wire {
            Wire::Name(named) => !matches!(named.name, Expr::Lit(_)) || named.policy.is_some(),
            _ => false,
        }
    }

    /// As a parameter of the outer function, if it is one.
    fn given(&self) -> Option<TokenStream> {
        let (name, of) = (&self.name, &self.argument.ty);
        matches!(self.wire, Wire::Argument).then(|| quote!(#name: #of))
    }

    /// `let end0 = ..;`, for what comes from the scope.
    fn join(&self, scope: &Ident) -> Option<TokenStream> {
        let (variable, of) = (&self.name, &self.argument.ty);
        match &self.wire {
            Wire::Argument => None,
            Wire::Scope => {
                let ours = Span::mixed_site();
                let taken = quote_spanned!(ours=> ::core::clone::Clone::clone(&#scope));
                Some(quote_spanned!(ours=> let #variable: #of = #taken;))
            }
            Wire::Name(named) => {
                let Named { kind, place, name, policy, portable } = &**named;
                // The calls have the attribute's position: errors while it is joined, and the wait records,
                // name it.
                let place = *place;
                let kind = match kind.to_string().as_str() {
                    "sender" => quote_spanned!(place=> ::dunlin::__rt::AsSender),
                    "receiver" => quote_spanned!(place=> ::dunlin::__rt::AsReceiver),
                    "client" => quote_spanned!(place=> ::dunlin::__rt::AsClient),
                    _ => quote_spanned!(place=> ::dunlin::__rt::AsServer),
                };
                let policy = policy.as_ref().map(|policy| quote_spanned!(place=> .policy(#policy)));
                let name = quote_spanned!(place=> ::core::convert::AsRef::<str>::as_ref(&#name));
                let portable = portable.as_ref().map(|word| quote_spanned!(place=> .#word()));
                let join = quote_spanned!(place=> ::dunlin::__rt::join::<#of, #kind>(&#scope, #name)#policy #portable);
                Some(quote_spanned!(Span::mixed_site()=> let #variable: #of = #join.await?;))
            }
        }
    }
}

impl Wire {
    fn of(attribute: Attribute) -> Result<Self> {
        let kind = attribute.path().get_ident().cloned();
        let kind = kind.ok_or_else(|| Error::new_spanned(&attribute, "only one word is known here"))?;
        if kind == "scope" {
            attribute.meta.require_path_only()?;
            return Ok(Self::Scope);
        }
        let channel = kind == "sender" || kind == "receiver";
        let what = if channel {
            format!("write `#[{kind}(\"name\")]`; behind the name the channel's policy, as `fifo(4)`, and `portable`")
        } else {
            format!(
                "write `#[{kind}(\"name\")]`; behind the name `portable`; the policies of a bundle stand in the bundle"
            )
        };
        let parsed = attribute.parse_args_with(syn::punctuated::Punctuated::<Expr, Token![,]>::parse_terminated);
        let mut parts: Vec<Expr> = parsed.ok().into_iter().flatten().collect();
        let portable = parts.last().filter(|_| parts.len() > 1).and_then(portable).cloned();
        parts.truncate(parts.len() - usize::from(portable.is_some()));
        let mut parts = parts.into_iter();
        let (name, policy, more) = (parts.next(), parts.next(), parts.next());
        let place = attribute.span();
        match name {
            Some(name) if more.is_none() && (channel || policy.is_none()) => {
                Ok(Self::Name(Box::new(Named { kind, place, name, policy, portable })))
            }
            _ => Err(Error::new_spanned(attribute, what)),
        }
    }
}

/// The word `portable`, if the expression is that word.
fn portable(part: &Expr) -> Option<&Ident> {
    match part {
        Expr::Path(path) => path.path.get_ident().filter(|word| *word == "portable"),
        _ => None,
    }
}

/// The name of the attribute, if it is one of ours.
fn kind(attribute: &Attribute) -> Option<&Ident> {
    let word = attribute.path().get_ident()?;
    let ours = ["sender", "receiver", "client", "server", "scope"];
    ours.iter().any(|known| word == known).then_some(word)
}

fn expand_checked(propagate: bool, mut function: ItemFn, parameters: &[Parameter]) -> TokenStream {
    let ours = Span::mixed_site();
    let name = function.sig.ident.clone();
    let text = name.to_string();
    let returned = match &function.sig.output {
        ReturnType::Default => quote_spanned!(ours=> ()),
        ReturnType::Type(_, of) => quote!(#of),
    };
    if propagate {
        let body = propagated(&function, parameters, &text, &returned);
        function.block = parse_quote!({ #body });
    }

    let attributes = std::mem::take(&mut function.attrs);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let mut inner = function;
    inner.sig.inputs = parameters.iter().map(|parameter| FnArg::Typed(parameter.argument.clone())).collect();

    let generics = &inner.sig.generics;
    let (parameters_of, bounds) = (generics.params.iter(), &generics.where_clause);
    let outer_generics = (!generics.params.is_empty()).then(|| quote!(<#(#parameters_of),*>));
    let named = generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(of) => Some(&of.ident),
        GenericParam::Const(of) => Some(&of.ident),
        GenericParam::Lifetime(_) => None,
    });
    let turbofish = (!generics.params.is_empty()).then(|| quote!(::<#(#named),*>));

    let scope = Ident::new("scope", ours);
    let given = parameters.iter().filter_map(Parameter::given);
    let joins: Vec<_> = parameters.iter().filter_map(|parameter| parameter.join(&scope)).collect();
    let passed = parameters.iter().map(|parameter| &parameter.name);
    // An error for a body that is not a `Send` future is placed at the function's name.
    let wired = placed(quote_spanned!(ours=> ::dunlin::__rt::named), &name);
    quote_spanned! {ours=>
        #(#attributes)*
        #visibility fn #name #outer_generics(#(#given),*) -> impl ::dunlin::Wired<Output = #returned> #bounds {
            #[allow(clippy::unused_async, clippy::too_many_arguments)]
            #inner
            #wired(#text, move |#scope: ::dunlin::Scope| async move {
                #(#joins)*
                ::core::mem::drop(#scope);
                ::core::result::Result::Ok::<_, ::dunlin::ScopeError>(#name #turbofish(#(#passed),*))
            })
        }
    }
}

/// The body; afterwards, the channels of its ends end as it did.
fn propagated(function: &ItemFn, parameters: &[Parameter], text: &str, returned: &TokenStream) -> TokenStream {
    let ours = Span::mixed_site();
    let body = &function.block;
    let tethers = Ident::new("tethers", ours);
    let tied = parameters.iter().filter(|parameter| matches!(parameter.wire, Wire::Name(_))).map(|parameter| {
        let name = match &*parameter.argument.pat {
            Pat::Ident(pattern) => &pattern.ident,
            _ => &parameter.name,
        };
        let of = &parameter.argument.ty;
        let tether = placed(quote_spanned!(ours=> <#of as ::dunlin::__rt::Tethered>::tether), of);
        quote_spanned!(ours=> #tether(&#name, &mut #tethers);)
    });
    // An error for a result that does not show the ending is placed at its type.
    let propagating = placed(quote_spanned!(ours=> ::dunlin::__rt::propagating), returned);
    // The first statement fixes the block's type before `?` and `return` need it.
    quote_spanned! {ours=>
        #[allow(unused_mut)]
        let mut #tethers = ::std::vec::Vec::new();
        #(#tied)*
        #propagating(#text, #tethers, async {
            if let ::core::option::Option::Some(never) = ::core::option::Option::None::<#returned> {
                return never;
            }
            let ended: #returned = #body;
            #[allow(unreachable_code)]
            ended
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::{Blame, blame};

    fn refusal(function: &str) -> Blame {
        blame(function, |function| expand(TokenStream::new(), function))
    }

    fn expansion(arguments: &str, function: &str) -> String {
        expand(arguments.parse().expect(arguments), function.parse().expect(function)).expect(function).to_string()
    }

    #[test]
    fn unwired_parameters_become_arguments() {
        let found = expansion(
            "",
            "#[doc = \"Says.\"]
            pub(crate) async fn f(#[receiver(\"raw\")] mut raw: R, mut by: u8, (a, b): (A, B), #[scope] s: Scope) -> T { work() }",
        );
        let outer = quote! {
            #[doc = "Says."]
            pub(crate) fn f(by: u8, argument2: (A, B)) -> impl ::dunlin::Wired<Output = T>
        };
        assert!(found.starts_with(&outer.to_string()), "{found}");
        let inner = quote!(
            async fn f(mut raw: R, mut by: u8, (a, b): (A, B), s: Scope) -> T {
                work()
            }
        );
        assert!(found.contains(&inner.to_string()), "{found}");
        assert!(found.contains(&quote!((f(end0, by, argument2, end3))).to_string()), "{found}");
    }

    #[test]
    fn process_keeps_its_generic_parameters() {
        let found = expansion("", "async fn f<T: Send, const N: usize>(#[sender(\"x\")] x: S<T>) where T: Copy {}");
        let outer = quote!(fn f<T: Send, const N: usize>() -> impl ::dunlin::Wired<Output = ()> where T: Copy);
        assert!(found.starts_with(&outer.to_string()), "{found}");
        assert!(found.contains(&quote!(f::<T, N>(end0)).to_string()), "{found}");
    }

    #[test]
    fn a_policy_is_for_its_end_only() {
        let found = expansion("", "async fn f(#[sender(\"x\", fifo(3))] x: S, #[receiver(y)] y: R) {}");
        assert_eq!(found.matches("policy").count(), 1);
        assert!(found.contains(&quote!(.policy(fifo(3)).await?).to_string()), "{found}");
    }

    #[test]
    fn portable_keyword_makes_the_end_portable() {
        let found = expansion(
            "",
            "async fn f(#[sender(\"x\", fifo(3), portable)] x: S, #[client(portable, portable)] y: C) {}",
        );
        assert!(found.contains(&quote!(.policy(fifo(3)).portable().await?).to_string()), "{found}");
        assert_eq!(found.matches(". portable ()").count(), 2, "{found}");
    }

    #[test]
    fn endings_are_propagated_only_with_the_keyword() {
        let function = "async fn f(#[sender(\"x\")] x: S) -> R { work() }";
        assert_eq!(expansion("", function).matches("propagating").count(), 0);
        assert_eq!(expansion("propagate,", function).matches("propagating").count(), 1);
    }

    #[test]
    fn refusals_of_functions() {
        assert_eq!(refusal("fn f() {}"), ("a process must be an `async fn`".into(), "fn".into()));
        assert_eq!(refusal("async unsafe fn f() {}"), ("a process must be a safe function".into(), "unsafe".into()));

        let what = "a process must be a function without `self`: pass what it uses as arguments";
        assert_eq!(refusal("async fn f(&self) {}"), (what.into(), "&self".into()));

        let what = "a process may outlive the code that forks it, so it has no lifetimes: let the process own what it \
                    uses";
        assert_eq!(refusal("async fn f<'a>(x: X<'a>) {}"), (what.into(), "'a".into()));

        let what = "a process must own its arguments: it may outlive the code that forks it";
        assert_eq!(refusal("async fn f(x: &str) {}"), (what.into(), "&str".into()));
        assert_eq!(refusal("async fn f(x: (u8, &'static &u8)) {}"), (what.into(), "&u8".into()));

        let what = "a process must own what it joins";
        assert_eq!(refusal("async fn f(#[sender(\"x\")] x: &mut S) {}"), (what.into(), "&mut S".into()));
        assert_eq!(refusal("async fn f() -> &u8 {}"), ("a process must own what it returns".into(), "&u8".into()));
    }

    #[test]
    fn refusals_of_wires() {
        let what = "write `#[sender(\"name\")]`; behind the name the channel's policy, as `fifo(4)`, and `portable`";
        for wire in
            ["#[sender]", "#[sender()]", "#[sender(a, b, c)]", "#[sender(a, b, c, portable)]", "#[sender = \"x\"]"]
        {
            assert_eq!(refusal(&format!("async fn f({wire} x: S) {{}}")), (what.into(), wire.into()));
        }
        let what =
            "write `#[client(\"name\")]`; behind the name `portable`; the policies of a bundle stand in the bundle";
        let wire = "#[client(\"x\", fifo(4))]";
        assert_eq!(refusal(&format!("async fn f({wire} x: S) {{}}")), (what.into(), wire.into()));

        let what = "this parameter is already wired";
        let found = refusal("async fn f(#[sender(\"x\")] #[receiver(\"y\")] x: S) {}");
        assert_eq!(found, (what.into(), "#[receiver(\"y\")]".into()));

        let found = refusal("async fn f(#[sender(\"x\")] (x, y): S) {}");
        assert_eq!(found, ("a joined parameter must have one name".into(), "(x, y)".into()));
    }

    #[test]
    fn refusals_of_arguments() {
        let refused = |arguments| {
            blame(arguments, |arguments| {
                expand(
                    arguments,
                    quote!(
                        async fn f() {}
                    ),
                )
            })
        };
        assert_eq!(refused("poison"), (KNOWN.into(), "poison".into()));
        assert_eq!(refused("3"), (KNOWN.into(), "3".into()));
        assert_eq!(refused("propagate, propagate"), ("`propagate` is given twice".into(), "propagate".into()));
    }
}
