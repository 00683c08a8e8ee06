"""A decoder-only character transformer in the style of nanoGPT; the norm comes in as an argument.

Sources: Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), Radford et al. 2019 (GPT-2), Xiong
et al. 2020 (pre and post placement, https://arxiv.org/abs/2002.04745).

Legend: B batch, T time, C channels (n_embd), H heads, D head size, V vocabulary.
"""

import math
import random
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal multi-head self-attention, (B, T, C) -> (B, T, C)."""

    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_head, self.dropout = n_head, dropout
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.proj = nn.Linear(n_embd, n_embd, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix each token with those before it; so no real token sees padding on the right."""
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, D)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        y = y.transpose(1, 2).reshape(B, T, C)
        return F.dropout(self.proj(y), self.dropout, self.training)


class MLP(nn.Module):
    """Two linear layers with a GELU between them, 4 C wide inside, (..., C) -> (..., C)."""

    def __init__(self, n_embd: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self.fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transform each token on its own."""
        return F.dropout(self.proj(F.gelu(self.fc(x))), self.dropout, self.training)


class Block(nn.Module):
    """Attention and MLP, each with a norm and a residual connection, (B, T, C) -> (B, T, C)."""

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        norm: Callable[[int], nn.Module],
        *,
        placement: str,
        dropout: float,
        bias: bool,
    ) -> None:
        super().__init__()
        self.placement = placement
        self.attention_norm = norm(n_embd)
        self.attention = Attention(n_embd, n_head, dropout, bias)
        self.mlp_norm = norm(n_embd)
        self.mlp = MLP(n_embd, dropout, bias)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """pre: x + F(N(x)). post: N(x + F(x))."""
        if self.placement == "pre":
            x = x + self.attention(self.attention_norm(x, mask))
            x = x + self.mlp(self.mlp_norm(x, mask))
        else:
            x = self.attention_norm(x + self.attention(x), mask)
            x = self.mlp_norm(x + self.mlp(x), mask)
        return x


class GPT(nn.Module):
    """The whole model: ids (B, T) -> logits (B, T, V).

    Args:
        norm: called as `norm(n_embd)` once for each site, so no two sites share a module.
        placement: `pre` (with a norm after the last block) or `post` (without).
        init: `nanogpt`: N(0, 0.02), residual projections over sqrt(2 n_layer). `xavier`: variance
            2 / (fan in + fan out) for each matrix (Q, K and V count as three), embeddings 1 /
            n_embd.
        embed_scale: a fixed factor on the embeddings. Norms rescale their input; without one the
            scale matters.
        seed: of the initial weights. Each parameter has its own generator, seeded by (seed, name),
            so two models with other norms or placements share their other weights to the bit.

    Raises:
        ValueError: a size, placement or init that cannot be.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        n_layer: int,
        n_head: int,
        n_embd: int,
        norm: Callable[[int], nn.Module],
        *,
        placement: str = "pre",
        init: str = "nanogpt",
        embed_scale: float = 1.0,
        dropout: float = 0.0,
        bias: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__()
        if min(vocab_size, block_size, n_layer, n_head, n_embd) < 1 or n_embd % n_head:
            raise ValueError(
                "model sizes must be at least 1 and n_embd divisible by n_head, "
                f"got {vocab_size=} {block_size=} {n_layer=} {n_head=} {n_embd=}"
            )
        if placement not in ("pre", "post"):
            raise ValueError(f"model.placement={placement} is not known; use pre or post")
        if init not in ("nanogpt", "xavier"):
            raise ValueError(f"model.init={init} is not known; use nanogpt or xavier")
        if not 0 <= dropout < 1:
            raise ValueError(f"model.dropout={dropout} must be at least 0 and below 1")
        self.block_size, self.dropout, self.embed_scale = block_size, dropout, embed_scale
        torch.manual_seed(
            random.Random(f"norms {seed}").getrandbits(63)
        )  # if a norm draws its start
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.position_embedding = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList(
            Block(n_embd, n_head, norm, placement=placement, dropout=dropout, bias=bias)
            for _ in range(n_layer)
        )
        self.final_norm = norm(n_embd) if placement == "pre" else None
        self._init_weights(init, n_layer, n_embd, seed)

    @torch.no_grad()
    def _init_weights(self, init: str, n_layer: int, n_embd: int, seed: int) -> None:
        """The one place where weights get their start; norms keep the one they were built with."""
        for name, module in self.named_modules():
            if not isinstance(module, nn.Linear | nn.Embedding):
                continue
            if init == "nanogpt":
                std = 0.02 / math.sqrt(2 * n_layer) if name.endswith("proj") else 0.02
            elif isinstance(module, nn.Embedding):
                std = n_embd**-0.5
            else:
                fan_out = n_embd if name.endswith("qkv") else module.out_features
                std = math.sqrt(2 / (module.in_features + fan_out))
            # random.Random hashes a string with SHA-512: stable over processes and versions, unlike
            # hash()
            key = random.Random(f"init {seed} {name}.weight").getrandbits(63)
            generator = torch.Generator().manual_seed(key)
            module.weight.copy_(std * torch.randn(module.weight.shape, generator=generator))
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()

    def forward(self, idx: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of the next character at each position.

        Args:
            idx: (B, T) ids, T at most block_size.
            mask: (B, T), True = a real token, padding on the right. Only norms that average over
                tokens use it.
        """
        T = idx.shape[1]
        if T > self.block_size:
            raise ValueError(
                f"the model reads at most block_size={self.block_size} characters, got {T}"
            )
        positions = torch.arange(T, device=idx.device)
        x = self.token_embedding(idx) + self.position_embedding(positions)  # (B, T, C)
        x = F.dropout(self.embed_scale * x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x, mask)
        if self.final_norm is not None:
            x = self.final_norm(x, mask)
        return F.linear(x, self.token_embedding.weight)  # (B, T, V), the head is the embedding

    @torch.no_grad()
    def generate(
        self,
        idx: torch.Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Continue idx (B, T) by `max_new_tokens` ids, in the mode (train or eval) the model is in.

        Args:
            idx: (B, T) ids to go on from.
            max_new_tokens: how many to add.
            temperature: below 1 keeps to likely characters, 0 takes the likeliest.
            top_k: draw from the k likeliest characters only.
            generator: the source of randomness, apart from training's.

        Returns:
            (B, T + max_new_tokens); the model itself sees the last block_size of them.

        Raises:
            ValueError: a negative temperature or a top_k below 1.
        """
        if not temperature >= 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                f"temperature must be >= 0 and top_k >= 1, got {temperature=} {top_k=}"
            )
        for _ in range(max_new_tokens):
            # (B, V), drawn from on the CPU: one seed gives one text on every device
            logits = self(idx[:, -self.block_size :])[:, -1].cpu().double()
            if temperature == 0:
                following = logits.argmax(-1, keepdim=True)
            else:
                scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
                if top_k is not None:
                    smallest = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                    scaled = scaled.masked_fill(logits < smallest, -math.inf)
                p = scaled.softmax(-1)
                following = torch.multinomial(p, 1, generator=generator)
            idx = torch.cat([idx, following.to(idx.device)], dim=1)
        return idx
